// Bindings as a diagram: exchanges on the left, queues on the right, and the keys on the lines between.

import { h, s } from "../dom.js";

const ROW = 46;
const NODE_HEIGHT = 32;
const CHARACTER = 7.2;

/**
 * `left` and `right`: nodes with `id`, `label`, `href`; `edges`: `from`, `to`, `key`.
 * `hits`: the ids of nodes to emphasize (the others become pale); `center`: the id of the node that the page is about.
 */
export function bindingGraph({ left, right, edges, hits = null, center = null, label }) {
  const figure = h("div", { class: "figure" });
  const rows = Math.max(left.length, right.length, 1);
  const height = rows * ROW + 8;
  const place = (nodes) => new Map(nodes.map((one, number) => [one.id, (height / (nodes.length || 1)) * (number + 0.5)]));
  const [fromY, toY] = [place(left), place(right)];
  figure.style.setProperty("min-height", `${height}px`);

  new ResizeObserver(([entry]) => {
    const width = entry.contentRect.width;
    if (width < 80) return;
    const box = Math.min(250, width * 0.36);
    figure.replaceChildren(s("svg", { class: "graph", viewBox: `0 0 ${width} ${height}`, height, role: "group", "aria-label": label },
      edges.map((one) => edge(one, box, width, fromY, toY, hits)),
      left.map((one) => node(one, 0.5, box, fromY.get(one.id), hits, center)),
      right.map((one) => node(one, width - box - 0.5, box, toY.get(one.id), hits, center)),
      edges.map((one) => keyOf(one, box, width, fromY, toY))));
  }).observe(figure);
  return figure;
}

function node({ id, label, href }, x, width, y, hits, center) {
  const state = hits ? (hits.has(id) ? "hit" : "dim") : id === center ? "center" : "";
  const shown = cut(label, (width - 24) / CHARACTER);
  return s("a", { class: `node ${state}`, href, "aria-label": label }, s("title", {}, label),
    s("rect", { x, y: y - NODE_HEIGHT / 2, width, height: NODE_HEIGHT, rx: 8 }),
    s("text", { x: x + 12, y: y + 4.5 }, shown));
}

function edge({ from, to }, box, width, fromY, toY, hits) {
  const [x1, x2, y1, y2] = [box, width - box, fromY.get(from), toY.get(to)];
  if (y1 === undefined || y2 === undefined) return null;
  const middle = (x1 + x2) / 2;
  const state = hits ? (hits.has(from) && hits.has(to) ? "hit" : "dim") : "";
  return s("path", { class: `edge ${state}`, d: `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}` });
}

/** The key of an edge, near its queue, so that the keys of one exchange do not overlap. */
function keyOf({ from, to, key }, box, width, fromY, toY) {
  if (!key || fromY.get(from) === undefined || toY.get(to) === undefined) return null;
  const room = width - 2 * box;
  const t = 0.72;
  const [y1, y2] = [fromY.get(from), toY.get(to)];
  const y = y1 + (y2 - y1) * (3 * t * t - 2 * t * t * t);
  const x = box + room * (1.5 * t * (1 - t) ** 2 + 1.5 * t * t * (1 - t) + t ** 3);
  const shown = cut(key, (room * 0.55) / 6.6);
  return shown && s("text", { class: "key", x, y: y + 4, "text-anchor": "middle" }, shown);
}

const cut = (text, room) => (text.length <= room ? text : room < 3 ? "" : `${text.slice(0, Math.max(1, Math.floor(room) - 1))}…`);
