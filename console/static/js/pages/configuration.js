// The configuration: each option with its value, and where that comes from.

import { h } from "../dom.js";
import { bytes, count, duration, setting, text } from "../format.js";
import { badge } from "../parts/basics.js";
import { table } from "../parts/table.js";
import { page } from "./page.js";

export function configurationPage(view) {
  const list = table(view, {
    label: "Configuration", search: "Filter options", sort: "name", rowKey: (one) => one.name, perPage: 200,
    load: (query, signal) => view.api.get("/configuration", query, signal),
    columns: [
      { key: "name", label: "Option", sort: true, kind: "main-cell", render: (one) => [h("code", {}, one.name), one.help && h("div", { class: "muted" }, one.help)] },
      { key: "value", label: "Value", render: (one) => h("span", { title: text(one.value) }, shown(one)) },
      { key: "source", label: "Source", sort: true, render: (one) => badge(text(one.source), one.source === "default" ? "" : "info") },
    ],
  });
  return page("Configuration", { lead: "The options of the broker, and the source of each value." }, h("section", { class: "panel", "aria-label": "Configuration" }, list.element));
}

function shown({ name, value, unit }) {
  if (typeof value !== "number") return setting(name, value);
  if (unit) return unit === "bytes" ? bytes(value) : duration(value);
  return name.endsWith("port") || !Number.isInteger(value) ? String(value) : count(value);
}
