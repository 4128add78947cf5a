// A stretch of a recording to cite: a line for a footnote, its words and its sound.

import { h, notice } from "./dom.js";
import { fileName } from "./downloads.js";
import { get, save } from "./http.js";
import { timesOf } from "./stretch.js";

export function openClip(job) {
  const times = timesOf();
  const found = h("div", { role: "status" });
  const form = h("form", { onsubmit: (event) => {
    event.preventDefault();
    const wanted = times.values();
    if (wanted) get(`/v1/jobs/${job.id}/clip?${new URLSearchParams(wanted)}`).then(show, (error) => notice(error.message, true));
  } }, h("h2", { id: "clip-title" }, "Cite a stretch"), times.fields,
  h("p", { class: "quiet small" }, "Select words in the transcript to fill in the times. The citation names the version of the words, which its address keeps."),
  found,
  h("div", { class: "row" }, h("button", { class: "primary" }, "Cite"), h("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  const dialog = h("dialog", { "aria-labelledby": "clip-title" }, form);
  function show(clip) {
    const citation = h("textarea", { rows: "5", readonly: true, "aria-label": "Citation" }, clip.citation);
    const take = (title, address, ending) => h("button", { type: "button", onclick: () => save(address, fileName(clip.name, ending, ` ${clip.start}-${clip.end}`)).catch((error) => notice(error.message, true)) }, title);
    const [words, sound] = [clip.transcript_url, clip.audio_url].map((url) => { const { pathname, search } = new URL(url); return pathname + search; });
    found.replaceChildren(h("p", {}, clip.text || h("em", { class: "quiet" }, "no words")), h("div", { class: "editor" }, citation),
      h("div", { class: "row" }, h("button", { type: "button", onclick: () => copy(citation) }, "Copy"),
        take("Sound (.wav)", sound, "wav"), take("Text (.txt)", words, "txt"), take("Subtitles (.srt)", `${words}&format=srt`, "srt"), take("Words with times (.json)", `${words}&format=json`, "json")));
  }
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

async function copy(citation) {
  try {
    await navigator.clipboard.writeText(citation.value);
    notice("Copied.");
  } catch {
    citation.select(); // browsers refuse the clipboard on a plain http address
    notice("Press Ctrl+C or ⌘C to copy.");
  }
}
