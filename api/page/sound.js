// The recording's sound: play, a picture of it to move in, speed. Short recordings that this server plays show their
// loudness. Others show how many words are spoken when, since decoding 20 hours to draw a line would take minutes.

import { clock, h, notice, s } from "./dom.js";

const SPEEDS = [0.5, 0.75, 1, 1.25, 1.5, 1.75, 2, 2.5, 3];
const BARS = 400;
const HEIGHT = 40;
const DECODED_S = 1200;
const DECODED_HZ = 8000;
const STEP_S = 5;

// `link` is an address, or the Error that says why there is none. `moved(seconds)` follows the sound.
export function playerOf(link, duration, moved) {
  const audio = typeof link === "string" ? h("audio", { preload: "metadata", src: link }) : null;
  audio?.addEventListener("error", () => notice("Your browser cannot play this recording.", true));
  const length = () => Math.max(duration, audio?.duration || 0, 0.001);
  const toggle = h("button", { type: "button", class: "play primary", "aria-label": "Play", onclick: playOrPause }, "▶");
  const now = h("span", { class: "now" }, clock(0));
  const time = h("span", { class: "time" }, now, h("span", { class: "quiet" }, ` / ${clock(duration)}`));
  const path = s("path", { class: "loud" });
  const gone = s("rect", { class: "gone", x: 0, y: 0, width: 0, height: HEIGHT });
  const image = s("svg", { viewBox: `0 0 ${BARS} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, path, gone);
  const wave = h("div", { class: "wave", role: "slider", tabindex: "0", "aria-label": "Position in the recording", "aria-valuemin": "0",
    "aria-valuemax": String(Math.round(duration)), "aria-valuenow": "0", "aria-valuetext": clock(0) }, image);
  const speed = h("select", { "aria-label": "Speed", onchange: () => { audio.playbackRate = Number(speed.value); } },
    SPEEDS.map((one) => h("option", { value: String(one), selected: one === 1 }, `${one}×`)));

  function playOrPause() {
    if (audio.paused) audio.play().catch(() => {});
    else audio.pause();
  }
  function seek(seconds) {
    if (audio) audio.currentTime = Math.min(Math.max(0, seconds), audio.duration || Infinity);
  }
  function show() {
    const at = audio.currentTime;
    now.textContent = clock(at);
    gone.setAttribute("width", String((at / length()) * BARS));
    wave.setAttribute("aria-valuenow", String(Math.round(at)));
    wave.setAttribute("aria-valuetext", clock(at));
    moved(at);
  }
  const placed = (event) => {
    const box = wave.getBoundingClientRect();
    return ((event.clientX - box.left) / box.width) * length();
  };
  wave.addEventListener("pointerdown", (event) => {
    if (!audio || event.button) return;
    wave.setPointerCapture(event.pointerId);
    seek(placed(event));
  });
  wave.addEventListener("pointermove", (event) => {
    if (audio && wave.hasPointerCapture(event.pointerId)) seek(placed(event));
    wave.title = clock(Math.max(0, placed(event)));
  });
  wave.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -STEP_S, ArrowRight: STEP_S, PageDown: -60, PageUp: 60, Home: -Infinity, End: Infinity }[event.key];
    if (!audio || step === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    seek(Math.min(audio.currentTime + step, length()));
  });
  let ticking = 0;
  const tick = () => {
    show();
    ticking = audio.paused ? 0 : requestAnimationFrame(tick);
  };
  audio?.addEventListener("play", () => { ticking ||= requestAnimationFrame(tick); });
  for (const [name, sign, label] of [["play", "❚❚", "Pause"], ["pause", "▶", "Play"]]) {
    audio?.addEventListener(name, () => {
      toggle.textContent = sign;
      toggle.setAttribute("aria-label", label);
    });
  }
  audio?.addEventListener("seeked", show);
  audio?.addEventListener("ratechange", () => { speed.value = String(audio.playbackRate); });

  return {
    audio, toggle, time, wave, speed: audio ? speed : null,
    play(seconds) {
      if (!audio) return;
      seek(seconds);
      audio.play().catch(() => {}); // a browser may refuse to play unasked
    },
    seek,
    seconds: () => audio?.currentTime ?? 0,
    // The keys that work anywhere on the page of a recording, except where text is typed.
    control(key) {
      if (!audio) return false;
      if (key === " ") playOrPause();
      else if (key.toLowerCase() === "j") seek(audio.currentTime - STEP_S);
      else if (key.toLowerCase() === "l") seek(audio.currentTime + STEP_S);
      else if (key === "<" || key === ">") {
        const at = SPEEDS.findIndex((one) => one >= audio.playbackRate);
        audio.playbackRate = SPEEDS[Math.min(Math.max(at + (key === ">" ? 1 : -1), 0), SPEEDS.length - 1)];
      } else return false;
      return true;
    },
    async draw(words) {
      const spoken = heights(words.length, (at) => words[at].start / length(), () => 1, "sum");
      path.setAttribute("d", pathOf(spoken));
      image.prepend(s("title", {}, "How many words are spoken when"));
      if (!audio || duration > DECODED_S || !link.startsWith("/")) return;
      const loud = await loudness(link).catch(() => null);
      if (loud) {
        path.setAttribute("d", pathOf(loud));
        image.firstChild.textContent = "How loud the recording is";
      }
    },
    leave() {
      cancelAnimationFrame(ticking);
      audio?.pause();
    },
  };
}

// The largest or the sum of values, for each bar, between 0 and 1.
function heights(count, place, value, how) {
  const bars = new Float64Array(BARS);
  for (let at = 0; at < count; at++) {
    const bar = Math.min(Math.floor(place(at) * BARS), BARS - 1);
    bars[bar] = how === "sum" ? bars[bar] + value(at) : Math.max(bars[bar], value(at));
  }
  const most = bars.reduce((a, b) => Math.max(a, b), 0) || 1;
  return bars.map((one) => one / most);
}

function pathOf(bars) {
  const lines = [];
  bars.forEach((share, at) => {
    const half = Math.max(0.5, share * (HEIGHT / 2 - 1));
    lines.push(`M${at + 0.15} ${HEIGHT / 2 - half}h.7v${2 * half}h-.7z`);
  });
  return lines.join("");
}

async function loudness(link) {
  const response = await fetch(link, { redirect: "manual" });
  if (!response.ok) return null; // a redirect leads to a bucket, which the page may play but not read
  const sound = await new OfflineAudioContext(1, 1, DECODED_HZ).decodeAudioData(await response.arrayBuffer());
  const samples = sound.getChannelData(0);
  return heights(Math.floor(samples.length / 4), (at) => (4 * at) / samples.length, (at) => Math.abs(samples[4 * at]), "max");
}
