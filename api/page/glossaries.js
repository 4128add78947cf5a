// Glossaries: a project's lists of names and phrases, their versions, and names that corrections suggest for them.

import { brief, count, facts, fill, h, moment, notice, number, table } from "./dom.js";
import { get, send } from "./http.js";

const MOST_VERSIONS = 20;
const within = (project) => new URLSearchParams({ project });
const address = (name, project, version = null) => `#/glossaries/${name}${version ? `@${version}` : ""}?${within(project)}`;

export async function showGlossaries(root) {
  const name = h("input", { required: true, maxlength: "64", pattern: "[A-Za-z0-9][A-Za-z0-9._\\-]*", autocomplete: "off" });
  const project = h("input", { maxlength: "64", autocomplete: "off" });
  const phrases = h("textarea", { rows: "6", required: true, spellcheck: "false" });
  const form = h("form", { class: "card add", onsubmit: (event) => {
    event.preventDefault();
    put({ name: name.value, text: phrases.value, extend: true, ...(project.value ? { project: project.value } : {}) }, (added) => {
      location.hash = address(added.name, added.project);
    });
  } },
  h("h2", {}, "Add phrases"),
  h("label", {}, "Glossary (letters, digits, dots and hyphens)", name),
  h("label", {}, "Project (default: yours)", project),
  h("label", {}, "Phrases, one per line", phrases),
  h("div", { class: "row" }, h("button", { class: "primary" }, "Add")));
  const list = h("div"), models = h("div");
  async function refresh() {
    const [{ items }, built] = await Promise.all([get("/v1/glossaries"), get("/v1/language-models")]);
    fill(models, languageModels(built.items, refresh));
    const columns = [{ title: "Glossary", class: "name" }, { title: "Version", number: true }, { title: "Phrases", number: true },
      { title: "From corrections" }, { title: "Changed" }, { title: "By" }, { title: "Project" }];
    columns.label = "Glossaries";
    fill(list, items.length ? table(columns, items.map((one) => [
      h("a", { href: address(one.name, one.project) }, one.name), number(one.version), number(one.count), taken(one),
      brief(one.created_at), one.created_by, one.project,
    ])) : h("p", { class: "quiet" }, "There are no glossaries yet. A glossary is a list of names and phrases for jobs to favour; a job uses it with ",
      h("code", {}, "--glossary NAME"), "."));
  }
  await refresh();
  fill(root, h("h1", {}, "Glossaries"), list, form, models);
  return { refresh };
}

export async function showGlossary(root, reference, query) {
  const [name, version] = reference.split("@");
  const project = query.get("project");
  const scope = project ? `?${within(project)}` : "";
  let last = null;
  async function refresh() {
    const asked = new URLSearchParams({ glossary: name, ...(project ? { project } : {}) });
    const [latest, one, suggested] = await Promise.all([get(`/v1/glossaries/${name}${scope}`),
      get(`/v1/glossaries/${reference}${scope}`), version ? { items: [] } : get(`/v1/glossary-suggestions?${asked}`)]);
    if (JSON.stringify([latest, one, suggested]) === last) return;
    last = JSON.stringify([latest, one, suggested]);
    const first = Math.max(1, latest.version - MOST_VERSIONS + 1);
    const numbers = Array.from({ length: latest.version - first + 1 }, (_, at) => latest.version - at);
    fill(root,
      h("h1", {}, `${one.name}@${one.version}`),
      h("p", {}, h("a", { href: "#/glossaries" }, "Glossaries")),
      facts([
        ["Project", one.project], ["Phrases", number(one.count)], ["Weight", String(one.weight)],
        ["From corrections", taken(one)], ["Made", [moment(one.created_at), ` by ${one.created_by}`]],
      ]),
      h("p", { class: "row" }, h("span", { class: "quiet" }, "Versions"), numbers.map((each) => each === one.version
        ? h("strong", {}, String(each)) : h("a", { href: address(name, latest.project, each) }, String(each)))),
      version ? null : suggestions(suggested.items, (phrase) => put({ name, project: latest.project, phrases: [phrase], extend: true }, refresh)),
      h("h2", {}, "Phrases"),
      h("ul", { class: "phrases" }, one.phrases.map((phrase) => h("li", {}, phrase))),
      h("p", {}, h("button", { type: "button", class: "danger", onclick: () => remove(name, scope) }, "Delete the glossary")));
  }
  await refresh();
  return { refresh };
}

function languageModels(items, then) {
  const columns = [{ title: "Language model", class: "name" }, { title: "Version", number: true }, { title: "Order", number: true },
    { title: "N-grams", number: true }, { title: "Model" }, { title: "Changed" }, { title: "By" }, { title: "Project" }, { title: "Action" }];
  columns.label = "Language models";
  return [h("h2", {}, "Language models"),
    h("p", { class: "quiet small" }, "Build one from a project's own texts with ", h("code", {}, "spool lm build TEXTS --model M --name NAME"),
      "; a job uses it with ", h("code", {}, "--language-model NAME"), "."),
    items.length ? table(columns, items.map((one) => [one.name, number(one.version), number(one.ngram_order), number(one.ngrams), one.model ?? "",
      brief(one.created_at), one.created_by, one.project,
      h("button", { type: "button", class: "danger", "aria-label": `Delete ${one.name}`, onclick: () => removeModel(one, then) }, "Delete")]))
      : h("p", { class: "quiet" }, "There are no language models.")];
}

function suggestions(items, add) {
  if (!items.length) return null;
  const columns = [{ title: "Name", class: "name" }, { title: "Recordings", number: true }, { title: "For example" }, { title: "Action" }];
  columns.label = "Names from corrections";
  return [h("h2", {}, "Names from corrections"),
    h("p", { class: "quiet small" }, "What people wrote into transcripts in place of what was recognised, and this glossary does not have."),
    table(columns, items.map((one) => [one.phrase, number(one.recordings), h("a", { href: `#/jobs/${one.job}` }, "a transcript"),
      h("button", { type: "button", "aria-label": `Add ${one.phrase}`, onclick: () => add(one.phrase) }, "Add")]))];
}

const taken = (one) => (one.auto_add_after ? `taken up from ${count(one.auto_add_after, "recording", "recordings")} on` : "only suggested");

async function put(body, then) {
  try {
    const added = await send("POST", "/v1/glossaries", body);
    notice(`${added.name}@${added.version} has ${count(added.count, "phrase", "phrases")}.`);
    await then(added);
  } catch (error) {
    notice(error.message, true);
  }
}

async function removeModel({ name, project }, then) {
  if (!confirm(`Delete every version of ${name}? Transcripts stay.`)) return;
  try {
    await send("DELETE", `/v1/language-models/${name}?${within(project)}`);
    notice("Deleted.");
    await then();
  } catch (error) {
    notice(error.message, true);
  }
}

async function remove(name, scope) {
  if (!confirm("Delete every version? Jobs that named it keep their phrases.")) return;
  try {
    await send("DELETE", `/v1/glossaries/${name}${scope}`);
    notice("Deleted.");
    location.hash = "#/glossaries";
  } catch (error) {
    notice(error.message, true);
  }
}
