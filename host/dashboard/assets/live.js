'use strict';
// Keeps the live parts of a page as the host is. Pages do without it.
const all = (root, what) => [...root.querySelectorAll(what)];
const plain = { createHTML: (html) => html };
// The host's templates escape every text.
const policy = window.trustedTypes ? trustedTypes.createPolicy('bulkhead', plain) : plain;
const ahead = Number(document.body.dataset.now) - Date.now();
const waiting = new Map();
let source, timer, over;

const state = document.createElement('p');
state.className = 'live';
state.role = 'status';
const show = (is) => { state.textContent = is ? '● live' : '○ not live'; };

// What a person fills in, presses or selects stays.
const isFilled = (field) => field === document.activeElement || (field.options
  ? [...field.options].some((one) => one.index && one.selected !== one.defaultSelected)
  : /box|radio/.test(field.type) ? field.checked !== field.defaultChecked : field.value !== field.defaultValue);
const isBusy = (part) => {
  const text = getSelection();
  return all(part, 'input, select, textarea').some(isFilled) || part.querySelector(':active')
    || (!text.isCollapsed && text.containsNode(part, true));
};

// What is called how, to find it again; names that are there twice differ.
const named = (part) => {
  const found = {};
  for (const one of all(part, 'a, button, summary, [tabindex]')) {
    let is = [one.tagName, one.ariaLabel || one.href || one.textContent, one.form?.action, one.value].join();
    while (is in found) is += '+';
    found[is] = one;
  }
  return found;
};
const scrolling = '.scroll, pre, blockquote';
const replace = (part, html) => {
  const before = named(part), focused = document.activeElement;
  const places = all(part, scrolling).map((one) => [one.scrollLeft, one.scrollTop]);
  part.innerHTML = policy.createHTML(html);
  for (const [is, one] of Object.entries(named(part))) {
    if (before[is]?.parentNode?.open) one.parentNode.open = true;
    if (before[is] === focused) one.focus({ preventScroll: true });
  }
  all(part, scrolling).forEach((one, at) => one.scrollTo(...places[at] || [0, 0]));
};

const tick = () => {
  for (const [id, html] of waiting) {
    const part = document.getElementById(id);
    if (part && isBusy(part)) continue;
    waiting.delete(id);
    if (part) replace(part, html);
  }
  for (const time of all(document, 'time:not(.exact)')) {
    const ms = Date.now() + ahead - Date.parse(time.dateTime), s = Math.abs(ms) / 1000;
    const [by, unit] = s < 60 ? [1, ' s'] : s < 3600 ? [60, ' min'] : s < 86400 ? [3600, ' h'] : [86400, ' d'];
    const span = Math.floor(s / by) + unit, said = ms < 0 ? 'in ' + span : span + ' ago';
    if (time.textContent !== said) time.textContent = said;
  }
};

// Browsers have few connections to one host: a hidden page keeps none.
const follow = () => {
  timer = clearTimeout(timer);
  source?.close();
  if (over || document.hidden) return show(false);
  source = new EventSource('/live?page=' + encodeURIComponent(location.pathname + location.search));
  source.onopen = () => {
    timer = clearTimeout(timer);
    show(true);
  };
  source.onerror = () => {
    // A stream that has ended is back in a second; one that was refused is not.
    if (source.readyState < 2) return timer ||= setTimeout(show, 3000);
    clearTimeout(timer);
    timer = setTimeout(follow, 15000);
    show(false);
  };
  source.addEventListener('part', ({ data }) => {
    const end = data.indexOf('\n');
    waiting.set(data.slice(0, end), data.slice(end + 1));
    tick();
  });
  source.addEventListener('over', () => follow(over = true));
};

document.documentElement.classList.add('scripted');
document.addEventListener('click', ({ target }) => {
  const copy = target.closest('.copy');
  if (copy) navigator.clipboard?.writeText(copy.dataset.copy).then(() => {
    copy.textContent = 'Copied';
    setTimeout(() => copy.textContent = 'Copy', 1500);
  });
});
// What a chart says below the pointer: the row of its table at that time.
document.addEventListener('pointermove', ({ target, clientX }) => {
  const plot = target.closest?.('.plot svg'), before = document.querySelector('.reading');
  if (!plot) return before?.remove();
  const chart = plot.closest('.chart'), { left, width } = plot.getBoundingClientRect();
  const rows = all(chart, 'tbody tr'), names = all(chart, 'th');
  const row = rows[Math.round((1 - (clientX - left) / width) * (rows.length - 1))];
  if (!row) return;
  const reading = before?.parentNode === chart ? before : document.createElement('output');
  if (before !== reading) before?.remove();
  reading.className = 'reading';
  const read = ({ textContent }, at) => at ? `${names[at].textContent.split(', ')[0]} ${textContent}` : textContent;
  reading.textContent = all(row, 'td').map(read).join(' · ');
  if (!reading.parentNode) chart.append(reading);
});
setInterval(tick, 1000);
if (document.querySelector('live-part')) {
  document.querySelector('header').append(state);
  document.addEventListener('visibilitychange', follow);
  follow();
}
