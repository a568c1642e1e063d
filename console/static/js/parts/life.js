// The lifetime of a message: its events from top to bottom, and beside them a line for each queue, from its arrival there to its departure.

import { h, put, s } from "../dom.js";
import { duration, exact } from "../format.js";

const LANE = 20;
const LONG_GAP_S = 0.001;

/**
 * Events with `time` (milliseconds, may be null), `lane` (the place), `title`, `detail` (nodes), `isEnd` (it leaves the place), `isMinor`.
 * *open*: the places where it still is; their lines continue to the end.
 */
export function lifeDiagram(events, open = new Set()) {
  const lanes = [...new Set(events.map((one) => one.lane))];
  const width = lanes.length * LANE + 12;
  const rows = events.map((event) => h("div", { class: "life-event", role: "listitem" }, h("div", { class: "what" }, event.title),
    h("div", { class: "when" }, exact(event.time)), h("div", { class: "more" }, event.detail)));
  const rail = s("svg", { class: "life-rail", width, "aria-hidden": "true" });
  const life = h("div", { class: "life", role: "list", "aria-label": "Events of the message", style: { "padding-left": `${width}px` } }, rail,
    rows.map((row, number) => [gap(events[number - 1], events[number]), row]));

  new ResizeObserver(() => {
    const points = rows.map((row, number) => ({ ...events[number], number: lanes.indexOf(events[number].lane), y: row.offsetTop + row.offsetHeight / 2 }));
    rail.setAttribute("height", String(life.offsetHeight));
    put(rail, lanes.map((lane) => line(lane, points, open.has(lane), life.offsetHeight)), points.map(dot));
  }).observe(life);

  return h("div", { class: "stack" }, h("div", { class: "legend" }, lanes.map((one, number) => h("span", {}, h("i", { class: seriesOf(number) }), one))), life);
}

function gap(before, event) {
  const passed = before && event.time !== null && before.time !== null ? (event.time - before.time) / 1000 : 0;
  return passed >= LONG_GAP_S && h("div", { class: "life-gap", role: "presentation" }, `${duration(passed)} later`);
}

const seriesOf = (lane) => `s${(lane % 6) + 1}`;
const laneX = (lane) => lane * LANE + 10;
const dot = ({ number, y, isEnd, isMinor }) => s("circle", { class: `${seriesOf(number)} ${isEnd ? "" : "solid"}`, cx: laneX(number), cy: y, r: isMinor ? 3.5 : 6 });

/** The line of a place. It begins at the departure just before, or else at the first event: the message was routed there from its arrival. */
function line(lane, points, isOpen, height) {
  const own = points.filter((one) => one.lane === lane);
  const [first, last] = [own[0], own.at(-1)];
  const x = laneX(first.number);
  const before = points[points.indexOf(first) - 1];
  const origin = before?.isEnd || before?.isMinor ? before : points[0];
  const middle = (origin.y + first.y) / 2;
  const branch = origin.lane !== lane && s("path", { class: `${seriesOf(first.number)} branch`,
    d: `M${laneX(origin.number)} ${origin.y}C${laneX(origin.number)} ${middle} ${x} ${middle} ${x} ${first.y}` });
  return [branch, s("path", { class: seriesOf(first.number), d: `M${x} ${first.y}V${isOpen ? height - 8 : last.y}` }),
    isOpen && s("path", { class: `${seriesOf(first.number)} open`, d: `M${x - 5} ${height - 13}L${x} ${height - 7}L${x + 5} ${height - 13}` })];
}
