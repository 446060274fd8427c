// The component's side of the border: the functions that the host offers, as the interface describes them. Chosen by the
// condition `bulkhead` when a component is built; everywhere else `testing.js` stands in.

import * as config from "bulkhead:plugin/config@0.1.0";
import * as keyvalue from "bulkhead:plugin/keyvalue@0.1.0";
import * as task from "bulkhead:plugin/task@0.1.0";

const functions = {
  ...task,
  get: config.get,
  all: config.all,
  kvGet: keyvalue.get,
  kvSet: keyvalue.set,
  kvDelete: keyvalue.delete,
  kvKeys: keyvalue.listKeys,
};

/** Says with its place where the plugin asks the host while it is built: there is no call, and the engine would just end. */
function inCall([name, call]) {
  const guarded = (...values) => {
    globalThis.bulkheadBuild?.refuse(`\`${name}\` of the host`);
    return call(...values);
  };
  return [name, guarded];
}

export const host = Object.fromEntries(Object.entries(functions).map(inCall));
