// Where else a corrected name was written otherwise: offered after the correction, each place with its clip.

import { clock, count, h, notice } from "./dom.js";
import { AUTHOR } from "./edits.js";
import { ask, get, send } from "./http.js";

const WAYS = { words: "the same words", alternative: "recognised beside it", spelling: "similar letters", sound: "the same sound" };
let offered = null;

// A line that stays until it is answered, if there are such places. `changed` is told which jobs were corrected.
export async function offerSpread(job, edit, query, changed) {
  if (!edit.text) return;
  const found = await get(`/v1/jobs/${job}/edits/${edit.revision}/places${query}`);
  if (!found.items.length) return;
  offered?.remove();
  const offer = h("div", { class: "notice" },
    h("p", {}, `${count(found.items.length, "other place", "other places")} may say ${found.names.join(", ")}.`),
    h("div", { class: "row" },
      h("button", { type: "button", class: "small primary", onclick: () => { offer.remove(); openSpread(job, edit.revision, query, changed, found); } }, "Look at them"),
      h("button", { type: "button", class: "small", onclick: () => offer.remove() }, "Not now")));
  offered = offer;
  document.getElementById("notices").append(offer);
}

// The places, to listen to and to accept.
export async function openSpread(job, revision, query, changed, found = null) {
  const address = `/v1/jobs/${job}/edits/${revision}`;
  const { names, items } = found ?? await get(`${address}/places${query}`);
  if (!items.length) return notice(names.length ? `No other places of ${names.join(", ")} were found.` : "This correction wrote no name.");
  const touched = new Set();
  const status = h("p", { class: "small", role: "status" });
  const audio = new Audio();
  const rows = items.map((place) => rowOf(place, () => listen(place, rows.find((one) => one.place === place).play), () => accept([place])));
  const every = h("button", { type: "button", class: "primary", onclick: () => accept(rows.filter((one) => one.open()).map((one) => one.place)) });
  const back = h("button", { type: "button", hidden: true, onclick: undo }, "Undo all");
  const dialog = h("dialog", { class: "spread", "aria-labelledby": "spread-title" },
    h("h2", { id: "spread-title" }, `${names.join(", ")} elsewhere`),
    h("p", { class: "quiet small" }, "Listen, and accept what is right. Nothing changes before."),
    h("ol", {}, rows.map((one) => one.element)), status,
    h("div", { class: "row" }, every, back, h("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  function show() {
    const left = rows.filter((one) => one.open()).length;
    every.textContent = `Accept all ${left}`;
    every.hidden = left < 2;
    back.hidden = !touched.size;
  }
  async function accept(places) {
    try {
      const { items: done, refused } = await send("POST", `${address}/spread${query}`, { author: localStorage.getItem(AUTHOR) || null,
        places: places.map(({ job, first_word, last_word, written, text, seen }) => ({ job, first_word, last_word, written, text, seen })) });
      for (const one of rows.filter(({ place }) => places.includes(place))) {
        const within = (each) => each.job === one.place.job && each.first_word <= one.place.first_word && one.place.last_word <= each.last_word;
        one.decide(done.some(within) ? "accepted" : "kept", refused.find((each) => each.job === one.place.job && each.first_word === one.place.first_word)?.reason);
      }
      for (const each of done) touched.add(each.job);
      status.textContent = `${count(places.length - refused.length, "place", "places")} corrected.`;
    } catch (error) {
      notice(error.message, true);
    }
    show();
  }
  async function undo() {
    try {
      const { refused } = await send("POST", `${address}/spread/undo${query}`, { author: localStorage.getItem(AUTHOR) || null });
      const kept = (place) => refused.find((each) => each.job === place.job && each.first_word <= place.first_word && place.last_word <= each.last_word);
      for (const one of rows) if (!one.open()) one.decide(kept(one.place) ? "kept" : "open", kept(one.place)?.reason);
      status.textContent = refused.length ? `Undone, but for ${count(refused.length, "place", "places")} that somebody changed since.` : "Everything is as it was before.";
      const again = await get(`${address}/places${query}`); // their transcripts have later revisions now
      for (const one of rows) one.place.seen = again.items.find((each) => each.job === one.place.job)?.seen ?? one.place.seen;
    } catch (error) {
      notice(error.message, true);
    }
    show();
    if (rows.every((one) => one.open())) back.hidden = true;
  }
  async function listen(place, button) {
    const playing = !audio.paused && audio.dataset.of === place.audio;
    audio.pause();
    if (playing) return;
    try {
      const sound = URL.createObjectURL(await (await ask(`${place.audio}${query.replace("?", "&")}`)).blob());
      URL.revokeObjectURL(audio.src);
      audio.src = sound;
      audio.dataset.of = place.audio;
      audio.onplay = () => { button.textContent = "Pause"; };
      audio.onpause = () => { button.textContent = "Play"; };
      await audio.play();
    } catch (error) {
      notice(error.message, true);
    }
  }
  dialog.addEventListener("close", () => {
    audio.pause();
    URL.revokeObjectURL(audio.src);
    dialog.remove();
    if (touched.size) changed(touched);
  });
  show();
  document.body.append(dialog);
  dialog.showModal();
}

function rowOf(place, listen, accept) {
  const play = h("button", { type: "button", class: "small", onclick: listen }, "Play");
  const take = h("button", { type: "button", class: "small", onclick: accept }, "Accept");
  const says = h("span", { class: "small quiet" });
  const ways = place.found_by.map((way) => WAYS[way]).join(", ");
  const sure = place.certainty === null ? "" : `, ${Math.round(100 * place.certainty)} % sure by its sound`;
  const element = h("li", {},
    h("p", {}, `${place.before} `, h("del", {}, place.written), " ", h("ins", {}, place.text), ` ${place.after}`),
    h("p", { class: "quiet small" }, h("a", { href: `#/jobs/${place.job}?t=${place.start}`, target: "_blank", rel: "noopener" }, place.name),
      `, ${clock(place.start)}: ${ways}${sure}`),
    h("div", { class: "row" }, play, take, says));
  let state = "open";
  return { element, place, play, open: () => state === "open", decide: (now, why = "") => {
    state = now;
    take.hidden = now !== "open";
    says.textContent = now === "accepted" ? "Corrected" : why;
    element.classList.toggle("done", now === "accepted");
  } };
}
