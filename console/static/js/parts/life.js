// The lifetime of a message: its events from top to bottom, and a rail for each queue that it was on.

import { h, put, s } from "../dom.js";
import { duration, exact } from "../format.js";

const LANE = 20;
const LONG_GAP_S = 0.001;

/** Events with `time` (milliseconds, may be null), `lane` (the place), `title`, `detail` (nodes), `isEnd`. */
export function lifeDiagram(events) {
  const lanes = [...new Set(events.map((one) => one.lane))];
  const width = lanes.length * LANE + 12;
  const rows = events.map((event) => h("div", { class: "life-event", role: "listitem" }, h("div", { class: "what" }, event.title),
    h("div", { class: "when" }, exact(event.time)), h("div", { class: "more" }, event.detail)));
  const rail = s("svg", { class: "life-rail", width, "aria-hidden": "true" });
  const life = h("div", { class: "life", role: "list", "aria-label": "Events of the message", style: { "padding-left": `${width}px` } }, rail,
    rows.map((row, number) => [gap(events[number - 1], events[number]), row]));

  new ResizeObserver(() => {
    const points = rows.map((row, number) => ({ lane: lanes.indexOf(events[number].lane), y: row.offsetTop + row.offsetHeight / 2, isEnd: events[number].isEnd }));
    rail.setAttribute("height", String(life.offsetHeight));
    put(rail, points.slice(1).map((point, number) => step(points[number], point)), points.map(dot));
  }).observe(life);

  return h("div", { class: "stack" }, h("div", { class: "legend" }, lanes.map((one, number) => h("span", {}, h("i", { class: seriesOf(number) }), one))), life);
}

function gap(before, event) {
  const passed = before && event.time !== null && before.time !== null ? (event.time - before.time) / 1000 : 0;
  return passed >= LONG_GAP_S && h("div", { class: "life-gap", role: "presentation" }, `${duration(passed)} later`);
}

const seriesOf = (lane) => `s${(lane % 6) + 1}`;
const laneX = (lane) => lane * LANE + 10;
const dot = ({ lane, y, isEnd }) => s("circle", { class: `${seriesOf(lane)} ${isEnd ? "" : "solid"}`, cx: laneX(lane), cy: y, r: 6 });

function step(from, to) {
  const [x1, x2, middle] = [laneX(from.lane), laneX(to.lane), (from.y + to.y) / 2];
  return s("path", { class: seriesOf(to.lane), d: from.lane === to.lane ? `M${x1} ${from.y}V${to.y}` : `M${x1} ${from.y}C${x1} ${middle} ${x2} ${middle} ${x2} ${to.y}` });
}
