// Line icons on a grid of 24, drawn for the console.

import { s } from "../dom.js";

const PATHS = {
  overview: "M4 19V11M10 19V5M16 19v-9M22 19H2",
  queues: "M4 6h16M4 12h16M4 18h10",
  exchanges: "M4 12h6M10 12l5-6h5M10 12l5 6h5M18 4l2 2-2 2M18 16l2 2-2 2",
  connections: "M9 7V3M15 7V3M7 7h10v4a5 5 0 0 1-10 0zM12 16v5",
  transactions: "M4 8h13l-3-3M20 16H7l3 3",
  timeline: "M5 5v14M5 7h.01M9 7h9M9 12h6M9 17h9M5 12h.01M5 17h.01",
  time: "M12 21a9 9 0 1 0-9-9M3 7v5h5M12 8v4l3 2",
  journal: "M4 5h5v5H4zM15 5h5v5h-5zM4 15h5v5H4zM15 15h5v5h-5z",
  cluster: "M12 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM5 22a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM19 22a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM10.5 7.600 6.500 16.400M13.500 7.600l4 8.800M8 19h8",
  users: "M9 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM2 21a7 7 0 0 1 14 0M16 3.500a4 4 0 0 1 0 7.500M18 15a7 7 0 0 1 4 6",
  configuration: "M4 7h10M18 7h2M16 5v4M4 17h2M10 17h10M8 15v4",
  logs: "M5 3h14v18H5zM9 8h6M9 12h6M9 16h3",
  search: "M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM16 16l5 5",
  close: "M6 6l12 12M18 6L6 18",
  menu: "M4 7h16M4 12h16M4 17h16",
  plus: "M12 5v14M5 12h14",
  up: "M6 15l6-6 6 6",
  left: "M15 6l-6 6 6 6",
  right: "M9 6l6 6-6 6",
  warning: "M12 3 2 20h20zM12 10v4M12 17h.01",
  error: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 7v6M12 16h.01",
  done: "M5 12l5 5 9-10",
  info: "M12 21a9 9 0 1 0 0-18 9 9 0 0 0 0 18zM12 11v5M12 8h.01",
  empty: "M3 13l3-8h12l3 8v6H3zM3 13h5l2 3h4l2-3h5",
  sun: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.400 1.400M17.600 17.600 19 19M19 5l-1.400 1.400M6.400 17.600 5 19",
  moon: "M20 14A8 8 0 1 1 10 4a6.500 6.500 0 0 0 10 10z",
  leave: "M14 4H5v16h9M10 12h11M17 8l4 4-4 4",
  refresh: "M20 11a8 8 0 1 0-1 5M20 4v7h-7",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  more: "M5 12.500a.5.5 0 1 0 0-1 .5.5 0 0 0 0 1zM12 12.500a.5.5 0 1 0 0-1 .5.5 0 0 0 0 1zM19 12.500a.5.5 0 1 0 0-1 .5.5 0 0 0 0 1z",
  link: "M10 14a4 4 0 0 0 6 0l3-3a4 4 0 0 0-6-6l-1 1M14 10a4 4 0 0 0-6 0l-3 3a4 4 0 0 0 6 6l1-1",
  download: "M12 4v11M7 11l5 5 5-5M4 20h16",
  send: "M3 11 21 3l-7 18-3-8z",
};

export function icon(name) {
  return s("svg", { viewBox: "0 0 24 24", "aria-hidden": "true", fill: "none", stroke: "currentColor", "stroke-width": 1.8,
    "stroke-linecap": "round", "stroke-linejoin": "round" }, s("path", { d: PATHS[name] }));
}

/** The cairn: three stones. */
export function mark() {
  const stone = (cx, cy, rx, ry, opacity) => s("ellipse", { cx, cy, rx, ry, opacity, fill: "var(--on-accent)" });
  return s("svg", { viewBox: "0 0 32 32", "aria-hidden": "true", class: "mark" },
    s("rect", { width: 32, height: 32, rx: 8, fill: "var(--accent)" }),
    stone(16, 23.4, 9.6, 3.7, 1), stone(16.6, 15.8, 6.9, 3.1, 0.86), stone(15.6, 9.2, 4.3, 2.6, 0.72));
}
