// Routes the address to a view. A view draws once and may return { refresh, leave, live }: `live` is an event stream
// that signals when to refresh.

import { showBatch, showBatches } from "./batches.js";
import { showCosts } from "./costs.js";
import { h, notice } from "./dom.js";
import { Problem } from "./http.js";
import { showJob } from "./job.js";
import { showJobs } from "./jobs.js";
import { showGlossaries, showGlossary } from "./glossaries.js";
import { showListen } from "./listen.js";
import { stayLive } from "./live.js";
import { showHome } from "./home.js";
import { showReview } from "./review.js";
import { showSearch } from "./search.js";
import { showSource, showSources } from "./sources.js";
import { listenForDrops, showSubmit } from "./submit.js";
import { showSystem } from "./system.js";
import { showBatchDiff, showDiff } from "./versions.js";

const REFRESH_MS = 2000;
const ANSWER_MS = 6000; // a server that answers later than this is said not to answer
const CALM_BEATS = 5; // with a live stream, what events do not carry (such as the time left) is polled less often
const [ARCHIVE, SEARCH, REVIEW, SUBMIT, LIVE, SYSTEM] = ["#/", "#/search", "#/review", "#/submit", "#/live", "#/system"];
// Each address with its view, its title, and where it belongs in the navigation.
const VIEWS = [
  [/^\/$/, showHome, "Archive", ARCHIVE],
  [/^\/jobs$/, showJobs, "Recordings", ARCHIVE],
  [/^\/jobs\/(\w+)$/, showJob, "Recording", ARCHIVE],
  [/^\/jobs\/(\w+)\/diff\/(\w+)$/, showDiff, "Versions", ARCHIVE],
  [/^\/batches\/(\w+)$/, showBatch, "Batch", ARCHIVE],
  [/^\/batches\/(\w+)\/diff$/, showBatchDiff, "Versions", ARCHIVE],
  [/^\/glossaries$/, showGlossaries, "Glossaries", ARCHIVE],
  [/^\/glossaries\/([\w.@-]+)$/, showGlossary, "Glossary", ARCHIVE],
  [/^\/search$/, showSearch, "Search", SEARCH],
  [/^\/review$/, showReview, "Review", REVIEW],
  [/^\/submit$/, showSubmit, "Submit", SUBMIT],
  [/^\/(?:live|listen)$/, showListen, "Live", LIVE],
  [/^\/system$/, showSystem, "System", SYSTEM],
  [/^\/batches$/, showBatches, "Batches", ARCHIVE],
  [/^\/sources$/, showSources, "Watched folders", SYSTEM],
  [/^\/sources\/(\w+)$/, showSource, "Watched folder", SYSTEM],
  [/^\/costs$/, showCosts, "Costs", SYSTEM],
];

const main = document.getElementById("main");
const gone = document.getElementById("gone");
let drawn = 0;
let view = null;
let stream = null;
let beats = 0;

async function draw(moved) {
  const drawing = ++drawn;
  view?.leave?.();
  stream?.leave();
  view = stream = null;
  const [path, query = ""] = (location.hash.slice(1) || "/").split("?");
  const route = VIEWS.map(([pattern, ...view]) => [pattern.exec(path), ...view]).find(([match]) => match);
  for (const link of document.querySelectorAll(".bar nav a")) {
    if (link.hash === route?.[3]) link.setAttribute("aria-current", link.hash.slice(1) === path ? "page" : "true");
    else link.removeAttribute("aria-current");
  }
  document.getElementById("find").hidden = path === "/search";
  if (!route) {
    main.replaceChildren(h("h1", {}, "Page not found"), h("a", { href: "#/" }, "Go to the archive"));
    return;
  }
  const [match, show, title] = route;
  document.title = path === "/" ? "Spool" : `${title} · Spool`;
  const root = h("div");
  try {
    const shown = await show(root, ...match.slice(1), new URLSearchParams(query));
    if (drawing !== drawn) return shown?.leave?.();
    view = shown ?? null;
    if (view?.title) document.title = `${view.title} · Spool`;
    stream = view?.live ? stayLive(view.live, view.refresh) : null;
    main.replaceChildren(root);
  } catch (error) {
    if (drawing !== drawn) return;
    main.replaceChildren(h("h1", {}, title), h("p", { class: "card error" }, error.message));
    if (!(error instanceof Problem)) view = { refresh: () => draw(false) };
  }
  if (moved) {
    main.focus({ preventScroll: true });
    scrollTo(0, 0);
  }
}

const unanswered = () => new Promise((_, reject) => setTimeout(() => reject(new TypeError("no answer")), ANSWER_MS));

async function beat() {
  if (!document.hidden && view?.refresh && (!stream?.isLive() || ++beats % CALM_BEATS === 0)) {
    try {
      await Promise.race([view.refresh(), unanswered()]);
      gone.hidden = true;
    } catch (error) {
      if (error instanceof TypeError) gone.hidden = false; // what fetch throws where nobody answers
      else notice(error.message, true);
    }
  }
  setTimeout(beat, REFRESH_MS);
}

document.getElementById("find").addEventListener("submit", (event) => {
  event.preventDefault();
  const words = new FormData(event.target).get("q").trim();
  if (words) location.hash = `#/search?${new URLSearchParams({ q: words })}`;
});
window.addEventListener("hashchange", () => {
  for (const dialog of document.querySelectorAll("dialog[open]:not(.required)")) dialog.close(); // they belong to the view that was left
  draw(true);
});
listenForDrops();
draw(false).then(() => setTimeout(beat, REFRESH_MS));
