// Watched folders and buckets: what each found, took and skipped, and why.

import { brief, count, facts, fill, h, moment, notice, number, span, state, table } from "./dom.js";
import { get, send } from "./http.js";
import { places } from "./system.js";

export async function showSources(root) {
  async function refresh() {
    const { items } = await get("/v1/sources");
    const columns = [
      { title: "Source", class: "name" }, { title: "State" }, { title: "Files", number: true }, { title: "Submitted", number: true },
      { title: "Skipped", number: true }, { title: "Last listed" }, { title: "Project" },
    ];
    columns.label = "Watched folders";
    fill(root, h("h1", {}, "Watched folders"), places("#/sources"), items.length ? table(columns, items.map((one) => [
      h("a", { href: `#/sources/${one.id}` }, one.name), [state(one.state), one.error ? h("span", { class: "small quiet" }, ` ${one.error}`) : null],
      number(one.files), number(one.counts.taken), number(one.counts.skipped + one.counts.refused), brief(one.listed_at), one.project,
    ])) : h("p", { class: "quiet" }, "No folder or bucket is watched yet. To submit new recordings as they arrive, run ",
      h("code", {}, "spool watch s3://bucket/prefix/"), " or ", h("code", {}, "spool watch FOLDER"), "."));
  }
  await refresh();
  return { refresh };
}

export async function showSource(root, id, query) {
  let last = null;
  const wanted = query.get("state") ?? "";
  async function act(question, method, path, message) {
    if (question && !confirm(question)) return;
    try {
      await send(method, path);
      notice(message);
      if (method === "DELETE") {
        location.hash = "#/sources";
        return;
      }
    } catch (error) {
      notice(error.message, true);
    }
    await refresh();
  }
  async function refresh() {
    const [one, files] = await Promise.all([get(`/v1/sources/${id}`),
      get(`/v1/sources/${id}/items?limit=100${wanted ? `&state=${wanted}` : ""}`)]);
    if (JSON.stringify([one, files]) === last) return;
    last = JSON.stringify([one, files]);
    const paused = one.state === "paused";
    fill(root,
      h("h1", {}, one.name),
      h("p", { class: "row" }, state(one.state),
        h("button", { type: "button", hidden: paused, onclick: () => act(null, "POST", `/v1/sources/${id}/check`, "It is listed now.") }, "List now"),
        h("button", { type: "button", hidden: paused, onclick: () => act(null, "POST", `/v1/sources/${id}/pause`, "Paused.") }, "Pause"),
        h("button", { type: "button", hidden: !paused, onclick: () => act(null, "POST", `/v1/sources/${id}/resume`, "Resumed.") }, "Resume"),
        h("button", { type: "button", onclick: () => openChange(one, refresh) }, "Change"),
        h("button", { type: "button", class: "danger",
          onclick: () => act("Stop watching, and forget what was found? Jobs stay.", "DELETE", `/v1/sources/${id}`, "Removed.") }, "Remove")),
      one.error ? h("p", { class: "card error" }, h("strong", {}, "It cannot be listed. "), `${one.error} It is tried again; since `,
        moment(one.failing_since), ".") : null,
      facts([
        ["Address", one.source], ["Project", one.project],
        ["Listed", `every ${span(one.every_seconds)}${one.settle_seconds ? `; files settle for ${span(one.settle_seconds)}` : ""}`],
        ["Last listed", one.listed_at ? [moment(one.listed_at), `, ${count(one.files, "file", "files")}`] : "not yet"],
        ["Next", paused ? "not while it is paused" : moment(one.next_listing_at)],
        one.options.model ? ["Model", one.options.model] : null,
        one.output ? ["Output", `${one.output.formats.join(", ")} below ${one.output.prefix}`] : null,
      ]),
      h("h2", {}, "Files"),
      h("p", { class: "row" }, wanted ? h("a", { href: `#/sources/${id}` }, "all") : h("strong", {}, "all"),
        ["taken", "settling", "skipped", "refused"].map((name) => wanted === name
          ? h("strong", {}, `${name} ${number(one.counts[name])}`)
          : h("a", { href: `#/sources/${id}?state=${name}` }, `${name} ${number(one.counts[name])}`))),
      files.items.length ? fileTable(files.items) : h("p", { class: "quiet" }, "None."),
      files.next_cursor ? h("p", { class: "quiet small" }, "The latest 100. All of them: ", h("code", {}, `GET /v1/sources/${id}/items`)) : null,
      h("p", { class: "quiet small" }, one.id));
  }
  await refresh();
  return { refresh };
}

async function openChange(one, refresh) {
  const { items } = await get("/v1/models");
  const names = [...new Set([one.options.model, ...items.map((model) => model.name)].filter(Boolean))];
  const model = h("select", {}, one.options.model ? null : h("option", { value: "" }, "the default"),
    names.map((name) => h("option", { value: name, selected: name === one.options.model }, name)));
  const every = h("input", { type: "number", min: "10", max: "604800", step: "any", required: true, value: String(one.every_seconds) });
  const form = h("form", { onsubmit: async (event) => {
    event.preventDefault();
    try {
      await send("PATCH", `/v1/sources/${one.id}`, { every_seconds: Number(every.value),
        ...(model.value && model.value !== one.options.model ? { options: { model: model.value } } : {}) });
      dialog.close();
      notice("Changed.");
    } catch (error) {
      notice(error.message, true);
    }
    await refresh();
  } },
  h("h2", { id: "change-title" }, "Change the source"),
  h("label", {}, "Listed every so many seconds", every),
  h("label", {}, "Model of its jobs to come", model),
  h("div", { class: "row" }, h("button", { class: "primary" }, "Change"),
    h("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  const dialog = h("dialog", { "aria-labelledby": "change-title" }, form);
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

function fileTable(items) {
  const columns = [{ title: "File", class: "name" }, { title: "State" }, { title: "Job, or why there is none" }, { title: "Seen" }];
  columns.label = "Files";
  return table(columns, items.map((item) => [item.path, state(item.state),
    item.job ? h("a", { href: `#/jobs/${item.job}` }, h("code", {}, item.job)) : item.reason ?? "it may still be growing", brief(item.seen_at)]));
}
