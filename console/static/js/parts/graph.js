// Bindings as a diagram: exchanges on the left, queues on the right, and before each queue the keys that lead to it.

import { h, s } from "../dom.js";
import { visible } from "../visible.js";

const ROW = 46;
const KEY_ROW = 28;
const NODE_HEIGHT = 32;
const KEY_HEIGHT = 22;
const CHARACTER = 7.2;
const KEY_CHARACTER = 6.8;
const STEM = 12;

/**
 * `left` and `right`: nodes with `id`, `label`, `href`; `edges`: `from`, `to`, `key`.
 * `hits`: the ids of nodes to emphasize (the others become pale); `center`: the id of the node that the page is about.
 */
export function bindingGraph({ left, right, edges, hits = null, center = null, label }) {
  const figure = h("div", { class: "figure" });
  const known = edges.filter((one) => left.some(({ id }) => id === one.from) && right.some(({ id }) => id === one.to));
  const rows = right.map(({ id }) => Math.max(ROW, KEY_ROW * known.filter((one) => one.to === id).length + 10));
  const height = Math.max(rows.reduce((sum, one) => sum + one, 0), ROW * left.length, ROW) + 8;
  const spare = (height - rows.reduce((sum, one) => sum + one, 0)) / 2;
  const toY = new Map(right.map((one, number) => [one.id, spare + rows.slice(0, number).reduce((sum, row) => sum + row, 0) + rows[number] / 2]));
  const fromY = new Map(left.map((one, number) => [one.id, (height / left.length) * (number + 0.5)]));
  figure.style.setProperty("min-height", `${height}px`);

  new ResizeObserver(([entry]) => {
    const width = entry.contentRect.width;
    if (width < 80) return;
    const box = Math.min(250, width * 0.27);
    const longest = Math.max(0, ...known.map((one) => visible(one.key).length));
    const room = Math.min(longest * KEY_CHARACTER + 16, width - 2 * box - 2 * STEM - 24, 300);
    figure.replaceChildren(s("svg", { class: "graph", viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": label },
      right.map((target) => {
        const own = known.filter((one) => one.to === target.id);
        return own.map((one, number) => edge(one, toY.get(one.to) + KEY_ROW * (number - (own.length - 1) / 2), { box, room, width, fromY, toY, hits }));
      }),
      left.map((one) => node(one, 0.5, box, fromY.get(one.id), hits, center)),
      right.map((one) => node(one, width - box - 0.5, box, toY.get(one.id), hits, center))));
  }).observe(figure);
  return figure;
}

function node({ id, label, href }, x, width, y, hits, center) {
  const state = hits ? (hits.has(id) ? "hit" : "dim") : id === center ? "center" : "";
  const shown = cut(label, (width - 20) / CHARACTER);
  return s("a", { class: `node ${state}`, href, "aria-label": label }, s("title", {}, label),
    s("rect", { x, y: y - NODE_HEIGHT / 2, width, height: NODE_HEIGHT, rx: 8 }),
    s("text", { x: x + 10, y: y + 4.5 }, shown));
}

/** A line from the exchange to the key, the key, and a line from there to the queue. */
function edge({ from, to, key }, y, { box, room, width, fromY, toY, hits }) {
  const state = hits ? (hits.has(from) && hits.has(to) ? "hit" : "dim") : "";
  const [x1, x2] = [box, width - box - STEM - (key ? room : 0)];
  const middle = (x1 + x2) / 2;
  const end = width - box;
  const line = s("path", { class: `edge ${state}`, d: `M${x1} ${fromY.get(from)}C${middle} ${fromY.get(from)} ${middle} ${y} ${x2} ${y}` });
  const stem = s("path", { class: `edge ${state}`, d: `M${end - STEM} ${y}C${end - STEM / 2} ${y} ${end - STEM / 2} ${toY.get(to)} ${end} ${toY.get(to)}` });
  if (!key) return [line, stem];
  return [line, stem, s("g", { class: `key ${state}` }, s("title", {}, key), s("rect", { x: x2, y: y - KEY_HEIGHT / 2, width: room, height: KEY_HEIGHT, rx: KEY_HEIGHT / 2 }),
    s("text", { x: x2 + room / 2, y: y + 4, "text-anchor": "middle" }, cut(key, (room - 10) / KEY_CHARACTER)))];
}

/** *name* with visible characters in at most *room* of them. */
function cut(name, room) {
  const text = visible(name);
  return text.length <= room ? text : `${text.slice(0, Math.max(1, Math.floor(room) - 1))}…`;
}
