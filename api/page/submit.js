// Submitting recordings: files and folders, chosen on this page or dropped on any. Before anything is sent, it says what is
// no recording, what was transcribed before, and how long the rest will take. Uploads run one at a time, go on while
// the reader looks elsewhere, and what fails can be tried again.

import { bar, count, fill, h, language, notice, size, sizes, span } from "./dom.js";
import { get } from "./http.js";
import { digest, submitFile } from "./uploads.js";

const HERE = "#/submit";
const NAMES = new Set((document.documentElement.dataset.recordingNames ?? "").split(" "));
const UNREAD = { seconds: null };
const LENGTH_MS = 5000; // a browser that has not read a recording's length by then will not

let dropped = []; // files that the page has still to show
let current = null; // the form, while it sends

export function listenForDrops() {
  const shade = document.getElementById("drop");
  let depth = 0;
  const files = (event) => [...(event.dataTransfer?.types ?? [])].includes("Files");
  addEventListener("dragenter", (event) => { if (files(event)) { depth++; shade.hidden = false; } });
  addEventListener("dragleave", (event) => { if (files(event) && --depth <= 0) { depth = 0; shade.hidden = true; } });
  addEventListener("dragover", (event) => { if (files(event)) event.preventDefault(); });
  addEventListener("drop", (event) => {
    if (!files(event)) return;
    event.preventDefault();
    depth = 0;
    shade.hidden = true;
    // The entries are gone once this handler has returned; the files can be read later.
    const entries = [...event.dataTransfer.items].map((item) => item.webkitGetAsEntry?.()).filter(Boolean);
    const plain = [...event.dataTransfer.files];
    (entries.some((entry) => entry.isDirectory) ? filesBelow(entries) : Promise.resolve(plain))
      .then((found) => (found.length ? open(found) : notice("There is no file in this folder.", true)))
      .catch((error) => notice(error.message, true));
  });
  addEventListener("beforeunload", (event) => { if (current) event.preventDefault(); });
}

function open(found) {
  dropped.push(...found);
  if (location.hash === HERE) dispatchEvent(new Event("dropped"));
  else location.hash = HERE;
}

// Every file of the entries and of the folders among them, named by its path; in order of the paths.
async function filesBelow(entries) {
  const files = [];
  const waiting = [...entries];
  while (waiting.length) {
    const entry = waiting.pop();
    if (entry.isFile) {
      const file = await new Promise((resolve, reject) => entry.file(resolve, reject));
      files.push(new File([file], entry.fullPath.replace(/^\//, ""), { type: file.type }));
    } else {
      const reader = entry.createReader();
      // A reader gives some entries at a time, and none at the end.
      for (let some = null; !some || some.length;) {
        some = await new Promise((resolve, reject) => reader.readEntries(resolve, reject));
        waiting.push(...some);
      }
    }
  }
  return files.sort((one, other) => (one.name < other.name ? -1 : 1));
}

const pathOf = (file) => file.webkitRelativePath || file.name;

// Why a file is passed over, or null.
function reasonToSkip(file) {
  if (pathOf(file).split("/").some((part) => part.startsWith("."))) return "hidden";
  const ending = file.name.includes(".") ? file.name.split(".").at(-1).toLowerCase() : "";
  return NAMES.has(ending) || /^(audio|video)\//.test(file.type) ? null : "not a recording, by its name";
}

// Seconds of sound, or null where the browser cannot tell.
function lengthOf(file) {
  return new Promise((resolve) => {
    const player = new Audio();
    const end = (seconds) => {
      URL.revokeObjectURL(player.src);
      resolve(Number.isFinite(seconds) ? seconds : null);
    };
    player.preload = "metadata";
    player.onloadedmetadata = () => end(player.duration);
    player.onerror = () => end(null);
    setTimeout(() => end(null), LENGTH_MS);
    player.src = URL.createObjectURL(file);
  });
}

export async function showSubmit(root) {
  if (current) {
    root.append(current);
    return {};
  }
  const [{ items: models }, { items: glossaries }] = await Promise.all([get("/v1/models"), get("/v1/glossaries")]);
  const items = [];
  const pick = (given) => h("input", { type: "file", multiple: true, class: "unseen", tabindex: "-1", ...given,
    onchange: (event) => { add([...event.target.files]); event.target.value = ""; } });
  const chosen = pick({ id: "files", "aria-label": "Files" });
  const folder = pick({ id: "folder", "aria-label": "Folder", webkitdirectory: true });
  const spoken = h("select", { name: "language" });
  const model = h("select", { name: "model" });
  const about = h("p", { class: "small quiet", id: "about-model" });
  model.setAttribute("aria-describedby", "about-model");
  const speakers = select("speakers", [["", "not told apart"], ["any", "told apart, however many"],
    ...Array.from({ length: 9 }, (_, at) => [String(at + 1), count(at + 1, "speaker", "speakers")])]);
  const glossary = select("glossary", [["", "none"], ...[...new Set(glossaries.map((one) => one.name))].map((name) => [name, name])]);
  const project = h("input", { name: "project", pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]{0,63}", placeholder: "default: the key's project" });
  const decoder = select("decoder", [["greedy", "greedy: fast"], ["beam", "beam: fewer errors, slower"]]);
  const channels = select("channels", [["mix", "mixed"], ["separate", "kept separate"]]);
  const repeat = h("input", { type: "checkbox", name: "again" });
  const witness = h("input", { type: "checkbox", name: "witness" });
  const anyway = h("input", { type: "checkbox", name: "anyway", onchange: () => tell() });
  const plan = h("div", { class: "plan", role: "status" });
  const progress = h("div");
  const go = h("button", { class: "primary" }, "Submit");
  const form = h("form", { class: "submitting", onsubmit: (event) => { event.preventDefault(); start(); } },
    h("div", { class: "dropzone" },
      h("p", {}, h("strong", {}, "Drop recordings or a folder here")),
      h("p", { class: "row" }, h("button", { type: "button", onclick: () => chosen.click() }, "Choose files"),
        h("button", { type: "button", onclick: () => folder.click() }, "Choose a folder"), chosen, folder)),
    plan,
    h("div", { class: "choices" }, h("label", {}, "Language spoken", spoken), h("label", {}, "Model", model),
      h("label", {}, "Speakers", speakers), h("label", {}, "Glossary", glossary)),
    about,
    h("details", {}, h("summary", {}, "More choices"), h("div", { class: "choices" }, h("label", {}, "Project", project),
      h("label", {}, "Search", decoder), h("label", {}, "Channels", channels)),
    h("p", {}, h("label", { class: "inline" }, witness, "check the words against their sounds (English)"),
      h("span", { class: "small quiet" }, " It judges sentences, not words of one or two sounds, nor which of two words that sound alike was said.")),
    h("p", {}, h("label", { class: "inline" }, repeat, "transcribe again what was submitted before with the same options"))),
    progress, h("div", { class: "row" }, go));

  function fillLanguages() {
    const codes = [...new Set(models.flatMap((one) => one.languages))].map((code) => [code, language(code)]);
    fill(spoken, option("", "found out, if the model can"), codes.sort(([, one], [, other]) => one.localeCompare(other)).map(([code, name]) => option(code, name)));
  }

  // The models for the language; of those the default one, else one whose files are here.
  function fillModels() {
    const code = spoken.value;
    const able = models.filter((one) => !code || !one.languages.length || one.languages.includes(code));
    const best = able.find((one) => one.default) ?? able.find((one) => one.ready && one.languages.length) ?? able[0];
    fill(model, able.map((one) => option(one.name, one.name, one === best)));
    tell();
  }

  const sent = () => items.filter((item) => !item.skip || (anyway.checked && item.skip !== "hidden"));

  // What there is to do, and how long it takes.
  function tell() {
    const one = models.find(({ name }) => name === model.value);
    about.textContent = one ? describe(one) : "No model here supports this language.";
    const sending = sent();
    const skipped = items.filter((item) => !sending.includes(item));
    const known = sending.filter((item) => item.known);
    const fresh = sending.filter((item) => !item.known);
    const checking = sending.filter((item) => !item.checked).length;
    const seconds = fresh.reduce((all, item) => all + (item.seconds ?? 0), 0);
    const unread = fresh.filter((item) => item.checked && item.seconds === null).length;
    go.textContent = sending.length ? `Submit ${count(sending.length, "recording", "recordings")}` : "Submit";
    fill(plan, items.length ? [
      h("p", {}, h("strong", {}, count(fresh.length, "new recording", "new recordings")),
        `, ${size(fresh.reduce((all, item) => all + item.file.size, 0))}${seconds ? `, ${span(seconds)} of sound` : ""}. `,
        checking ? `Looking at ${count(checking, "file", "files")}…` : howLong(one, seconds, unread)),
      known.length ? h("details", {}, h("summary", {}, `${count(known.length, "recording was", "recordings were")} transcribed before`),
        h("p", { class: "small quiet" }, "With the same choices their transcripts are taken over, free of charge."),
        h("ul", { class: "small" }, known.map((item) => h("li", {}, `${pathOf(item.file)}: `, h("a", { href: `#/jobs/${item.known.id}` }, item.known.name))))) : null,
      skipped.length || anyway.checked ? h("details", { open: anyway.checked },
        h("summary", {}, `${count(skipped.length, "file is", "files are")} skipped`),
        h("ul", { class: "small" }, skipped.map((item) => h("li", {}, `${pathOf(item.file)}: ${item.skip}`))),
        h("label", { class: "inline small" }, anyway, "submit files with unknown names too")) : null,
    ] : h("p", { class: "quiet" }, "Nothing is sent before you press the button."));
  }

  function add(files) {
    const there = new Set(items.map((item) => pathOf(item.file)));
    const added = files.filter((file) => !there.has(pathOf(file))).map((file) => ({ file, skip: reasonToSkip(file), checked: false, known: null, ...UNREAD }));
    items.push(...added);
    tell();
    for (const item of added) item.check = queue = queue.then(() => check(item));
  }
  let queue = Promise.resolve();

  async function check(item) {
    if (!item.skip) {
      item.seconds = await lengthOf(item.file);
      // Without an answer the file is only not known to be known.
      item.sha256 = await digest(item.file, () => {}).catch(() => null);
      const query = new URLSearchParams({ content: item.sha256 ?? "", limit: "1", ...(project.value ? { project: project.value } : {}) });
      const known = item.sha256 ? await get(`/v1/jobs?${query}`).catch(() => null) : null;
      item.known = known?.items[0] ?? null;
    }
    item.checked = true;
    tell();
  }

  function requestOf(file) {
    const request = { deduplicate: !repeat.checked, reuse: !repeat.checked, options: { model: model.value, decoder: decoder.value, channels: channels.value } };
    const one = models.find(({ name }) => name === model.value);
    if (spoken.value && one?.languages.length > 1) request.options.language = spoken.value;
    if (speakers.value) request.options.diarization = speakers.value === "any" ? {} : { speakers: Number(speakers.value) };
    if (witness.checked) request.options.witness = true;
    if (glossary.value) request.options.boost = { glossary: glossary.value };
    // The path inside a folder: without it, two `side-a.wav` would read the same.
    if (pathOf(file).includes("/")) request.name = pathOf(file).slice(-200);
    if (project.value) request.project = project.value;
    return request;
  }

  const jobs = [];
  let failed = [];
  let same = 0;
  async function start() {
    const tried = failed.length > 0 ? failed : sent();
    if (!tried.length) return notice("Choose a recording first.", true);
    current = form;
    go.disabled = true;
    failed = [];
    progress.replaceChildren();
    for (const item of tried) {
      const { file } = item;
      const meter = bar(0, file.name);
      const doing = h("span", { class: "quiet" });
      const line = h("div", { class: "small sending" }, h("span", { class: "row" }, h("span", {}, pathOf(file)), doing), meter);
      progress.append(line);
      line.scrollIntoView({ block: "nearest" });
      try {
        await item.check;
        const { job, unchanged } = await submitFile(file, requestOf(file), (what, bytes) => {
          meter.value = bytes / (file.size || 1);
          doing.textContent = `${what}: ${sizes(bytes, file.size)}`;
          line.scrollIntoView({ block: "nearest" }); // it has grown by a line of text where the page is narrow
        }, item.sha256);
        jobs.push(job);
        if (unchanged) same++;
        meter.value = 1;
        doing.textContent = unchanged ? "Unchanged" : "Submitted";
      } catch (error) {
        failed.push(item);
        doing.textContent = "";
        meter.before(h("strong", { role: "alert" }, error.message));
        line.scrollIntoView({ block: "nearest" });
      }
    }
    go.disabled = false;
    current = null;
    if (failed.length) {
      go.textContent = "Try again";
      return;
    }
    notice(same ? `${same} unchanged, ${jobs.length - same} new.` : `${count(jobs.length, "recording was", "recordings were")} submitted.`);
    if (location.hash === HERE) location.hash = jobs.length === 1 ? `#/jobs/${jobs[0].id}` : "#/jobs";
  }

  fillLanguages();
  fillModels();
  spoken.addEventListener("change", fillModels);
  model.addEventListener("change", tell);
  const take = () => add(dropped.splice(0));
  addEventListener("dropped", take);
  root.append(h("h1", {}, "Submit recordings"), form);
  take();
  return { leave: () => removeEventListener("dropped", take) };
}

const option = (value, label, selected = false) => h("option", { value, selected }, label);
const select = (name, options) => h("select", { name }, options.map(([value, label]) => option(value, label)));

function describe(one) {
  const spoken = one.languages.length === 1 ? `Only ${language(one.languages[0])}.` : one.languages.length ? `${one.languages.length} languages.` : "";
  return [one.good_for, spoken, one.rtfx ? `Lately ${span(3600 / one.rtfx)} for an hour of sound.` : "",
    one.ready ? "" : one.workers ? "Its first recording fetches it, which takes a while." : "No machine here has it now."].filter(Boolean).join(" ");
}

function howLong(one, seconds, unread) {
  if (!one || (!seconds && !unread)) return "";
  const rest = unread ? ` ${count(unread, "file does", "files do")} not say how long.` : "";
  if (!one.rtfx) return `How long it takes is known after the first recording.${rest}`;
  return seconds ? `About ${span(Math.ceil(seconds / one.rtfx / Math.max(1, one.workers)))} with ${one.name}, once its turn comes.${rest}` : rest;
}
