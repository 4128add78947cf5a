// Finds words in the transcript that is shown.

import { h } from "./dom.js";

const plain = (text) => text.toLowerCase().normalize("NFKD").replace(/[^\p{L}\p{N}'\s]/gu, "");
const MARKED = 500; // more matches than anybody looks through are counted, and not marked

// `drawn(at)` is the element of the word at this place of `order`.
export function findBar(words, order, drawn, go) {
  let texts = null;
  let matches = [];
  let marked = [];
  let at = -1;
  const status = h("span", { class: "quiet small", role: "status" });
  const input = h("input", { type: "search", placeholder: "Find in this text", "aria-label": "Find in this text" });
  function search() {
    for (const one of marked) one.classList.remove("found");
    marked = [];
    matches = [];
    at = -1;
    texts ??= order.map((one) => plain(words[one].text));
    const wanted = plain(input.value).trim().split(/\s+/).filter(Boolean);
    const final = wanted.length - 1;
    for (let from = 0; wanted.length && from + wanted.length <= texts.length; from++) {
      if (wanted.every((text, each) => each === final ? texts[from + each].startsWith(text) : texts[from + each] === text)) matches.push(from);
    }
    for (const from of matches.slice(0, MARKED)) {
      for (let each = 0; each < wanted.length; each++) marked.push(drawn(from + each));
    }
    marked = marked.filter(Boolean);
    for (const one of marked) one.classList.add("found");
    status.textContent = wanted.length ? `${matches.length} found` : "";
  }
  function next(step) {
    if (!matches.length) return;
    at = (at + step + matches.length) % matches.length;
    status.textContent = `${at + 1} of ${matches.length}`;
    go(matches[at]);
  }
  input.addEventListener("input", search);
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    next(event.shiftKey ? -1 : 1);
  });
  const element = h("div", { class: "find" }, input,
    h("button", { type: "button", "aria-label": "Previous match", onclick: () => next(-1) }, "↑"),
    h("button", { type: "button", "aria-label": "Next match", onclick: () => next(1) }, "↓"), status);
  return { element, focus: () => input.focus() };
}
