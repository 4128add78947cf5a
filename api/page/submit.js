// Submitting recordings: a dialog, or files and folders dropped anywhere. Each file becomes a job; uploads run one at a
// time, and what fails can be tried again. Hidden files of a folder are left out, and said to be; what is no audio fails
// as a job, with the reason.

import { bar, count, h, notice, sizes } from "./dom.js";
import { get } from "./http.js";
import { submitFile } from "./uploads.js";

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
      .then((files) => (files.length ? openSubmit(files) : notice("There is no file in this folder.", true)))
      .catch((error) => notice(error.message, true));
  });
}

// Every file of the entries and of the folders among them, named by its path; in order of the paths.
async function filesBelow(entries) {
  const files = [];
  let hidden = 0;
  const waiting = [...entries];
  while (waiting.length) {
    const entry = waiting.pop();
    if (entry.name.startsWith(".")) hidden++;
    else if (entry.isFile) {
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
  if (hidden) notice(`${count(hidden, "hidden file was", "hidden files were")} left out.`);
  return files.sort((one, other) => (one.name < other.name ? -1 : 1));
}

export async function openSubmit(given) {
  if (document.querySelector("dialog[open]")) return;
  const models = (await get("/v1/models")).items;
  const chosen = h("input", { type: "file", multiple: true, id: "files", accept: "audio/*,video/*" });
  const asFolder = h("input", { type: "checkbox", onchange: () => { chosen.webkitdirectory = asFolder.checked; } });
  const listed = h("p", { class: "small" }, given.length > 20 ? `${count(given.length, "file", "files")}: ${given.slice(0, 20).map((file) => file.name).join(", ")}, …`
    : given.map((file) => file.name).join(", "));
  const project = h("input", { name: "project", pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]{0,63}", placeholder: "default: the key's project" });
  const model = h("select", { name: "model" }, models.map((entry) => h("option", { value: entry.name, selected: entry.default }, entry.name)));
  const decoder = h("select", { name: "decoder" }, ["greedy", "beam"].map((name) => h("option", { value: name }, name)));
  const channels = h("select", { name: "channels" },
    [["mix", "mixed"], ["separate", "kept separate"]].map(([value, label]) => h("option", { value }, label)));
  const speakers = h("select", { name: "speakers" },
    [["", "do not identify"], ["any", "identify"], ...Array.from({ length: 9 }, (_, at) => [String(at + 1), `identify ${at + 1}`])]
      .map(([value, label]) => h("option", { value }, label)));
  const repeat = h("input", { type: "checkbox", name: "again" });
  const go = h("button", { class: "primary", value: "go" }, "Submit");
  const close = h("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const progress = h("div");
  const form = h("form", { onsubmit: (event) => { event.preventDefault(); start(); } },
    h("h2", { id: "submit-title" }, "Submit recordings"),
    given.length ? listed : [h("label", {}, "Recordings", chosen), h("label", { class: "inline" }, asFolder, "a whole folder")],
    h("label", {}, "Project", project),
    h("div", { class: "row" }, h("label", {}, "Model", model), h("label", {}, "Decoder", decoder), h("label", {}, "Channels", channels), h("label", {}, "Speakers", speakers)),
    h("label", { class: "inline" }, repeat, "transcribe again what was submitted before with the same options"),
    progress, h("div", { class: "row" }, go, close));
  const dialog = h("dialog", { "aria-labelledby": "submit-title" }, form);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();

  const jobs = [];
  let failed = [];
  let same = 0;
  async function start() {
    const again = failed.length > 0;
    const files = again ? failed : given.length ? given : [...chosen.files].filter((file) => !/(^|\/)\./.test(file.webkitRelativePath));
    if (!files.length) return notice("Choose a recording first.", true);
    go.disabled = chosen.disabled = true;
    failed = [];
    progress.replaceChildren();
    for (const file of files) {
      const meter = bar(0, file.name);
      const doing = h("span", { class: "quiet" });
      const line = h("div", { class: "small sending" }, h("span", { class: "row" }, h("span", {}, file.name), doing), meter);
      progress.append(line);
      line.scrollIntoView({ block: "nearest" });
      const request = { deduplicate: !repeat.checked, reuse: !repeat.checked, options: { model: model.value, decoder: decoder.value, channels: channels.value } };
      if (speakers.value) request.options.diarization = speakers.value === "any" ? {} : { speakers: Number(speakers.value) };
      // The path inside a folder: without it, two `side-a.wav` would read the same.
      const path = file.webkitRelativePath || file.name;
      if (path.includes("/")) request.name = path.slice(-200);
      if (project.value) request.project = project.value;
      try {
        const { job, unchanged } = await submitFile(file, request, (what, bytes) => {
          meter.value = bytes / (file.size || 1);
          doing.textContent = `${what}: ${sizes(bytes, file.size)}`;
          line.scrollIntoView({ block: "nearest" }); // it has grown by a line of text where the page is narrow
        });
        jobs.push(job);
        if (unchanged) same++;
        meter.value = 1;
        doing.textContent = unchanged ? "Unchanged" : "Submitted";
      } catch (error) {
        failed.push(file);
        doing.textContent = "";
        meter.before(h("strong", { role: "alert" }, error.message));
        line.scrollIntoView({ block: "nearest" });
      }
    }
    go.disabled = false;
    if (failed.length) go.textContent = "Try again";
    else {
      dialog.close();
      if (same) notice(`${same} unchanged, ${jobs.length - same} new.`);
      location.hash = jobs.length === 1 ? `#/jobs/${jobs[0].id}` : "#/jobs";
    }
  }
}
