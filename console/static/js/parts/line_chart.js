// A line chart over time. It keeps its size while it is updated; the pointer or the arrow keys show the values at one time. Where samples are missing,
// there is no line.

import { h, put, s } from "../dom.js";
import { clockTime, time } from "../format.js";

const HEIGHT = 200;
const SIDE = { top: 12, right: 6, bottom: 22, left: 46 };
const TICKS = 4;
const SHORT_MS = 600000;
const LEAST_MS = 60000;
const GAP = 1.8;

/**
 * `series`: names, with `key` in a sample and `label`; `format(value)`.
 * `update(samples, intervalS)` takes samples with a `time` in milliseconds, oldest first; after more than their interval, there is a gap.
 */
export function lineChart({ label, series, format, filled = false }) {
  const legendValues = series.map(() => h("b", {}, "–"));
  const legend = h("div", { class: "legend" }, series.map((one, number) =>
    h("span", {}, h("i", { class: `s${number + 1}` }), one.label, legendValues[number])));
  const drawing = s("svg", { class: "chart", role: "img", tabindex: 0, "aria-label": label });
  const tip = h("div", { class: "tip", hidden: true });
  const figure = h("div", { class: "figure" }, drawing, tip);
  let samples = [];
  let gapMs = Infinity;
  let width = 0;
  let at = -1;

  const observer = new ResizeObserver(([entry]) => {
    width = entry.contentRect.width;
    draw();
  });
  observer.observe(figure);

  const x = (when) => {
    const [first, last] = span();
    return SIDE.left + ((when - first) / (last - first)) * (width - SIDE.left - SIDE.right);
  };
  const valueOf = (sample, key) => (Number.isFinite(sample?.[key]) ? format(sample[key]) : "–");
  const span = () => {
    const last = samples.at(-1)?.time ?? Date.now();
    return [Math.min(samples[0]?.time ?? last, last - LEAST_MS), last];
  };

  function draw() {
    if (width < 80) return;
    const step = niceStep(samples.reduce((most, one) => Math.max(most, ...series.map(({ key }) => one[key] ?? 0)), 0));
    const top = step * TICKS;
    const y = (value) => SIDE.top + (1 - value / top) * (HEIGHT - SIDE.top - SIDE.bottom);
    drawing.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    put(drawing, rules(step, y), times(), series.map(({ key }, number) => lines(key, number, y)), cursor(y));
  }

  function rules(step, y) {
    return Array.from({ length: TICKS + 1 }, (_, number) => [
      s("line", { class: "rule", x1: SIDE.left, x2: width - SIDE.right, y1: y(step * number), y2: y(step * number) }),
      s("text", { x: SIDE.left - 8, y: y(step * number) + 4, "text-anchor": "end" }, format(step * number)),
    ]);
  }

  function times() {
    const [first, last] = span();
    const number = width < 420 ? 2 : 4;
    return Array.from({ length: number + 1 }, (_, one) => {
      const when = first + ((last - first) * one) / number;
      return s("text", { x: x(when), y: HEIGHT - 4, "text-anchor": one === 0 ? "start" : one === number ? "end" : "middle" }, last - first < SHORT_MS ? time(when) : clockTime(when));
    });
  }

  function lines(key, number, y) {
    return s("g", { class: `s${number + 1}` }, pieces(key).map((piece) => {
      const points = piece.map((one) => `${x(one.time).toFixed(1)} ${y(one[key]).toFixed(1)}`);
      if (piece.length === 1) return s("circle", { class: "dot lone", cx: x(piece[0].time), cy: y(piece[0][key]), r: 2 });
      const path = `M${points.join("L")}`;
      return [filled && s("path", { class: "area", d: `${path}L${x(piece.at(-1).time).toFixed(1)} ${y(0)}L${x(piece[0].time).toFixed(1)} ${y(0)}Z` }),
        s("path", { class: "line", d: path })];
    }));
  }

  /** The samples with a value, in runs without a gap. */
  function pieces(key) {
    const found = [];
    for (const one of samples) {
      if (!Number.isFinite(one[key])) continue;
      const last = found.at(-1)?.at(-1);
      if (last && one.time - last.time <= gapMs) found.at(-1).push(one);
      else found.push([one]);
    }
    return found;
  }

  function cursor(y) {
    const sample = samples[at];
    tip.hidden = !sample;
    if (!sample) return null;
    put(tip, h("div", { class: "muted" }, time(sample.time)), h("div", { class: "legend" }, series.map((one, number) =>
      h("span", {}, h("i", { class: `s${number + 1}` }), one.label, h("b", {}, valueOf(sample, one.key))))));
    const left = x(sample.time);
    tip.style.setProperty("left", left < width / 2 ? `${left + 10}px` : "auto");
    tip.style.setProperty("right", left < width / 2 ? "auto" : `${width - left + 10}px`);
    return [s("line", { class: "cursor", x1: left, x2: left, y1: SIDE.top, y2: HEIGHT - SIDE.bottom }),
      series.map(({ key }, number) => Number.isFinite(sample[key]) && s("circle", { class: `dot s${number + 1}`, cx: left, cy: y(sample[key]), r: 4 }))];
  }

  function point(number) {
    at = number;
    draw();
  }

  drawing.addEventListener("pointermove", (event) => {
    const place = event.clientX - drawing.getBoundingClientRect().left;
    const near = samples.reduce((best, one, number) => (Math.abs(x(one.time) - place) < Math.abs(x(samples[best].time) - place) ? number : best), 0);
    point(samples.length ? near : -1);
  });
  drawing.addEventListener("pointerleave", () => point(-1));
  drawing.addEventListener("blur", () => point(-1));
  drawing.addEventListener("keydown", (event) => {
    const move = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!move || !samples.length) return;
    event.preventDefault();
    point(Math.max(0, Math.min(samples.length - 1, (at < 0 ? samples.length - 1 : at) + move)));
  });

  return {
    element: h("div", { class: "stack" }, legend, figure),
    update(given, intervalS = Infinity) {
      samples = given;
      gapMs = intervalS * 1000 * GAP;
      const last = samples.at(-1);
      series.forEach(({ key }, number) => put(legendValues[number], valueOf(last, key)));
      drawing.setAttribute("aria-label", `${label}. ${series.map(({ key, label: name }) => `${name}: ${valueOf(last, key)}`).join(", ")}. Use the arrow keys for earlier values.`);
      if (at >= samples.length) at = -1;
      draw();
    },
  };
}

/** A step of 1, 2 or 5 times a power of ten, so that `TICKS` steps reach *largest*. */
function niceStep(largest) {
  const raw = Math.max(largest, 1e-9) / TICKS;
  if (largest <= 0) return 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  return power * [1, 2, 2.5, 5, 10].find((one) => one * power >= raw);
}
