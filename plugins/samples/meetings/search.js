// Looks through a range of time, day by day, for moments when nobody is busy.

const MINUTE_MS = 60_000;
const DAY_MINUTES = 1440;

export class Search {
  constructor({ participants, from, to, minutes, step_minutes = 15, hours = { from: 9, to: 17 } }) {
    this.participants = participants.map(({ name, busy = [] }) => ({
      name,
      busy: busy.map(({ start, end }) => [moment(start), moment(end)]).sort(([a], [b]) => a - b),
    }));
    this.day = Math.floor(moment(from) / DAY_MINUTES);
    this.first = this.day;
    this.from = moment(from);
    this.to = moment(to);
    if (this.to <= this.from) throw new RangeError("`to` is not after `from`");
    this.minutes = minutes;
    this.step = step_minutes;
    this.hours = hours;
    this.slots = [];
  }

  get days() {
    return Math.ceil(this.to / DAY_MINUTES) - this.first;
  }

  get daysDone() {
    return this.day - this.first;
  }

  names() {
    return this.participants.map(({ name }) => name);
  }

  /** Goes on without somebody, from the beginning. */
  without(name) {
    const left = this.participants.filter((participant) => participant.name.toLowerCase() !== name.toLowerCase());
    if (left.length === this.participants.length || left.length === 0) return false;
    this.participants = left;
    this.day = this.first;
    this.slots = [];
    return true;
  }

  /** Looks through one more day; false when there is none left. */
  advance(slotsMax) {
    const midnight = this.day * DAY_MINUTES;
    if (midnight >= this.to || this.slots.length >= slotsMax) return false;
    const begin = Math.max(midnight + this.hours.from * 60, this.from);
    const end = Math.min(midnight + this.hours.to * 60, this.to);
    for (let start = begin; start + this.minutes <= end && this.slots.length < slotsMax; start += this.step) {
      if (this.participants.every(({ busy }) => isFree(busy, start, start + this.minutes))) {
        this.slots.push({ start: text(start), end: text(start + this.minutes) });
        // The next suggestion shall be another one, not the same a step later.
        start += this.minutes - this.step;
      }
    }
    this.day += 1;
    return true;
  }
}

function isFree(busy, start, end) {
  for (const [from, to] of busy) {
    if (from >= end) return true;
    if (to > start) return false;
  }
  return true;
}

/** Minutes since 1970. */
function moment(iso) {
  const ms = Date.parse(iso);
  if (Number.isNaN(ms)) throw new RangeError(`${iso} is no time; write it like 2026-03-02T09:00:00Z`);
  return Math.floor(ms / MINUTE_MS);
}

function text(minutes) {
  return new Date(minutes * MINUTE_MS).toISOString().replace(":00.000Z", "Z");
}
