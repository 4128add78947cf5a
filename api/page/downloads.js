// One menu for every form in which a transcript can be taken home.

import { h, notice } from "./dom.js";
import { save } from "./http.js";

const FORMS = {
  txt: ["Text", "Plain text (.txt)"], paragraphs: ["Text", "Text in paragraphs (.txt)"], docx: ["Text", "Word document (.docx)"],
  srt: ["Subtitles", "SubRip (.srt)"], vtt: ["Subtitles", "WebVTT (.vtt)"], ttml: ["Subtitles", "TTML (.ttml)"],
  eaf: ["Research", "ELAN (.eaf)"], textgrid: ["Research", "Praat (.TextGrid)"], ohms: ["Research", "OHMS index (.vtt)"], tei: ["Research", "TEI (.xml)"], pbcore: ["Research", "PBCore (.xml)"], iiif: ["Research", "IIIF manifest (.json)"],
  rttm: ["Research", "Speakers’ turns (.rttm)"],
  tsv: ["Data", "Table of segments (.tsv)"], ctm: ["Data", "Words with times (.ctm)"], json: ["Data", "Everything (.json)"],
  lattice: ["Data", "Lattices (.json)"], kaldi: ["Data", "Lattices for Kaldi"],
};
const ENDINGS = { paragraphs: "paragraphs.txt", textgrid: "TextGrid", ohms: "ohms.vtt", tei: "tei.xml", pbcore: "pbcore.xml", iiif: "manifest.json" };

// `part`: which stretch of the recording it is.
export const fileName = (name, form, part = "") => `${name.replace(/\.[^.]*$/, "").replace(/[\\/:*?"<>|]/g, "_")}${part}.${ENDINGS[form] ?? form}`;

export function downloadsOf(job, transcript) {
  const there = Object.entries(FORMS).filter(([form]) => form === "rttm" ? transcript.diarization
    : !["lattice", "kaldi"].includes(form) || transcript.lattice?.length);
  const digits = h("input", { type: "checkbox" });
  const rules = h("select", {}, h("option", { value: "netflix" }, "Netflix"), h("option", { value: "bbc" }, "BBC"));
  const menu = h("details", { class: "menu" }, h("summary", { class: "button" }, "Download"), h("div", { class: "downloads" },
    h("label", { class: "inline small" }, digits, "Write numbers as digits"),
    h("label", { class: "inline small" }, "Rules of subtitles", rules),
    [...new Set(there.map(([, [kind]]) => kind))].map((kind) => h("div", { role: "group", "aria-label": kind }, h("strong", { class: "small quiet" }, kind),
      there.filter(([, [of]]) => of === kind).map(([form, [, title]]) =>
        h("button", { type: "button", "data-form": form, onclick: () => take(form) }, title))))));
  async function take(form) {
    menu.open = false;
    menu.firstChild.focus();
    const more = (digits.checked ? `&digits=${transcript.language ?? "en"}` : "")
      + (FORMS[form][0] === "Subtitles" ? `&subtitles=${rules.value}` : "");
    await save(`/v1/jobs/${job.id}/transcript?format=${form}${more}`, fileName(job.name, form)).catch((error) => notice(error.message, true));
  }
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    event.stopPropagation();
    menu.open = false;
    menu.firstChild.focus();
  });
  menu.addEventListener("focusout", (event) => {
    if (event.relatedTarget && !menu.contains(event.relatedTarget)) menu.open = false;
  });
  return menu;
}

export const FORMATS = Object.keys(FORMS).filter((form) => !["rttm", "lattice", "kaldi", "iiif"].includes(form));
