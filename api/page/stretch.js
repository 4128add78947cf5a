// Two times of a recording to type, filled in from the words that are selected in its transcript.

import { clock, h, notice } from "./dom.js";
import { seconds } from "./format.js";
import { selectedTimes } from "./transcript.js";

// `values()` is { start, end } in seconds; null, with a notice, where a time cannot be read.
export function timesOf() {
  const { start, end } = selectedTimes();
  const time = (id, tenths, example) => h("input", { id, required: true, size: "9", placeholder: example,
    value: Number.isNaN(tenths) ? "" : `${clock(Math.floor(tenths / 10))}.${tenths % 10}` });
  const from = time("stretch-from", Math.floor(start * 10 + 1e-6), "12:30"), to = time("stretch-to", Math.ceil(end * 10 - 1e-6), "14:00");
  return {
    fields: h("div", { class: "row" }, h("label", {}, "From", from), h("label", {}, "To", to)),
    values() {
      const times = { start: seconds(from.value), end: seconds(to.value) };
      if (times.start !== null && times.end !== null) return times;
      notice("Write the times as 12:30 or in seconds.", true);
      return null;
    },
  };
}
