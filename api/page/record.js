// A transcript read while it arrives. A recording of 20 hours is 27 MB of JSON: parsed at once it would stop the page
// for a moment, and no word would be seen before the last one came.

const LISTS = ["words", "segments"];
const SLICE_MS = 8;

// Work in slices, between which the page can move.
export function slices() {
  let until = performance.now() + SLICE_MS;
  return async () => {
    if (performance.now() < until) return;
    await (globalThis.scheduler?.yield?.() ?? new Promise((next) => setTimeout(next)));
    until = performance.now() + SLICE_MS;
  };
}

// `heard(words)` is called as words come; returns the whole record.
export async function readRecord(response, heard) {
  const breathe = slices();
  const lists = { words: [], segments: [] };
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = ""; // what is outside the lists
  let kept = "";
  let at = 0;
  let depth = 0;
  let quoted = false;
  let name = ""; // of the member that is read
  let opened = 0; // where the last string of the top level begins
  let list = null;
  for (;;) {
    const { value, done } = await reader.read();
    if (done) break;
    kept += value;
    let from = 0; // of what is not taken yet
    let whole = 0; // behind the last element that is complete
    const take = () => {
      for (const one of JSON.parse(`[${kept.slice(from, whole).replace(/^\s*,/, "")}]`)) list.push(one);
      from = whole;
    };
    for (; at < kept.length; at++) {
      const code = kept.charCodeAt(at);
      if (quoted) {
        if (code === 92) {
          if (at + 1 === kept.length) break;
          at++;
        } else if (code === 34) {
          quoted = false;
          if (depth === 1) name = kept.slice(opened, at);
        }
      } else if (code === 34) {
        quoted = true;
        opened = at + 1;
      } else if (code === 123 || code === 91) {
        depth++;
        if (code === 91 && depth === 2 && LISTS.includes(name)) {
          rest += kept.slice(from, at + 1);
          list = lists[name];
          from = whole = at + 1;
        }
      } else if (code === 125 || code === 93) {
        depth--;
        if (list && depth === 2) whole = at + 1;
        else if (list && depth === 1) {
          take();
          from = at;
          list = null;
        }
      }
    }
    if (list) take();
    else {
      const end = quoted ? opened - 1 : at; // a name is read whole
      rest += kept.slice(from, end);
      from = end;
    }
    kept = kept.slice(from);
    at -= from;
    opened -= from;
    if (lists.words.length) heard(lists.words);
    await breathe();
  }
  return Object.assign(JSON.parse(rest + kept), lists);
}
