// The machinery: queues, workers, speed and today's costs.

import { bar, brief, clock, count, fill, h, hours, money, number, span, state, table } from "./dom.js";
import { Problem, get } from "./http.js";

const PLACES = [["#/system", "Workers"], ["#/sources", "Watched folders"], ["#/costs", "Costs"]];

// Where one is within System.
export const places = (here) => h("nav", { class: "places", "aria-label": "System" }, PLACES.map(([href, title]) =>
  h("a", { href, "aria-current": href === here ? "page" : null }, title)));

async function workers() {
  try {
    return (await get("/v1/workers")).items;
  } catch (error) {
    if (error instanceof Problem && error.status === 403) return null;
    throw error;
  }
}

const tile = (value, label, href, title, kind = "") =>
  h(href ? "a" : "div", { class: `tile ${kind}`, href, title }, h("b", {}, value), h("span", { class: "quiet small" }, label));

export async function showSystem(root) {
  let last = null;
  async function refresh() {
    const [now, fleet, models] = await Promise.all([get("/v1/overview"), workers(), get("/v1/models")]);
    const shown = JSON.stringify([{ ...now, now: null }, fleet, models]);
    if (shown === last) return;
    last = shown;
    const defaultModel = models.items.find((one) => one.default);
    const sum = (name) => now.ended.filter((one) => one.state === name).reduce((all, one) => all + one.jobs, 0);
    const queued = now.waiting.reduce((all, one) => all + one.jobs, 0);
    const oldest = Math.max(0, ...now.waiting.map((one) => one.oldest_seconds));
    const running = Object.values(now.running).reduce((all, one) => all + one, 0);
    const failed = sum("failed");
    fill(root,
      h("h1", {}, "System"), places("#/system"),
      h("div", { class: "tiles" },
        tile(number(queued), queued ? `queued, the oldest for ${span(oldest)}` : "queued", "#/jobs?state=queued"),
        tile(number(running), "running", "#/jobs?state=running"),
        tile(number(sum("done")), "done", "#/jobs?state=done"),
        tile(number(failed), "failed", "#/jobs?state=failed", null, failed ? "bad" : "")),
      h("div", { class: "tiles lesser" },
        tile(hours(now.today.audio_seconds), "transcribed today"),
        tile(now.today.rtfx === null ? "–" : `${number(now.today.rtfx, now.today.rtfx < 10 ? 1 : 0)}×`, "RTFx today", null, "Seconds of audio per second of engine time"),
        tile(money(now.today.billable, now.today.currency), "spent today", "#/costs")),
      failed ? h("details", { class: "card small" }, h("summary", {}, "Why jobs failed"), h("ul", {},
        now.ended.filter((one) => one.state === "failed").sort((one, other) => other.jobs - one.jobs)
          .map((one) => h("li", {}, `${count(one.jobs, "job", "jobs")}: ${one.reason || "Unknown reason."}`)))) : null,
      now.unserved.length ? h("div", { class: "card error" }, h("strong", {}, "No running worker can take these jobs:"),
        h("ul", {}, now.unserved.map((one) => h("li", {},
          `${count(one.jobs, "job is", "jobs are")} waiting for ${one.waiting_for}.`)))) : null,
      h("h2", {}, "Workers"),
      defaultModel ? h("p", { class: "quiet small" }, "The default model is ", h("code", {}, defaultModel.name),
        defaultModel.workers ? "." : ", which no running worker has.") : null,
      fleetOf(fleet));
  }
  await refresh();
  return { refresh };
}

function fleetOf(fleet) {
  if (fleet === null) return h("p", { class: "quiet" }, "Your key may not list workers; that needs the scope admin.");
  const shown = fleet.filter((one) => one.state !== "stopped").slice(0, 100);
  if (!shown.length) return h("p", { class: "card error" }, "No worker is running. Jobs stay queued until you start one with ",
    h("code", {}, "spool-worker run"), ".");
  const columns = [
    { title: "Worker", class: "name" }, { title: "State" }, { title: "Pool" }, { title: "Machine" }, { title: "Models" },
    { title: "Busy" },
    { title: "Engine", number: true }, { title: "Last seen" },
  ];
  columns.label = "Workers";
  return table(columns, shown.map((one) => {
    const lived = (Date.parse(one.seen_at) - Date.parse(one.started_at)) / 1000;
    const share = lived > 0 ? one.busy_seconds / lived : 0;
    return [
      one.name,
      [state(one.state), one.reason ? h("div", { class: "small quiet" }, one.reason) : null, troublesOf(one)],
      one.pool, [one.chip, h("div", { class: "small quiet" }, machine(one))], modelsOf(one),
      [bar(share, `${one.name}: engine busy`), h("span", { class: "small quiet" }, `${Math.round(share * 100)} % of ${clock(lived)}`)],
      hours(one.busy_seconds), brief(one.seen_at)];
  }));
}

// What it gave back to others or dropped, since it started.
function troublesOf(one) {
  const words = [
    one.refused_jobs ? `${count(one.refused_jobs, "job", "jobs")} returned for other workers` : null,
    one.junk_messages ? `${count(one.junk_messages, "unknown message", "unknown messages")} dropped` : null,
  ].filter(Boolean).join(", ");
  return words ? h("div", { class: "small quiet" }, words) : null;
}

const machine = (one) => [
  one.gpu_cores ? `${one.gpu_cores} GPU cores` : null,
  one.memory_bytes ? `${Math.round(one.memory_bytes / 2 ** 30)} GiB` : null,
  one.version,
].filter(Boolean).join(", ");

// Loaded models first, with their bits if quantised and their size in memory; those that it could load are
// shown dimmed.
function modelsOf(one) {
  const facts = Object.fromEntries((one.model_facts || []).map((each) => [each.name, each]));
  const loaded = (one.loaded_models || []).filter((name) => one.models.includes(name)).map((name) => {
    const { bits, bytes } = facts[name] || {};
    const about = [bits ? `${bits} bits` : null, bytes ? `${Math.round(bytes / 1e6)} MB` : null].filter(Boolean);
    return about.length ? `${name} (${about.join(", ")})` : name;
  });
  const rest = one.models.filter((name) => !(one.loaded_models || []).includes(name));
  const heard = Object.entries(one.quality || {}).filter(([name]) => one.models.includes(name))
    .map(([name, each]) => `${name}: QoI ${(100 * each.qoi).toFixed(1)} %, WER ${(100 * each.wer).toFixed(1)} % in ${each.dtype}${each.bits ? ` with ${each.bits}-bit weights` : ""}`);
  return [
    loaded.join(", "),
    rest.length ? h("div", { class: "small quiet" }, rest.join(", ")) : null,
    ...heard.map((words) => h("div", { class: "small quiet" }, words)),
  ];
}
