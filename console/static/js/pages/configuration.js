// The configuration: each option with its value, and where that comes from.

import { h } from "../dom.js";
import { setting, text } from "../format.js";
import { badge } from "../parts/basics.js";
import { local, table } from "../parts/table.js";
import { page } from "./page.js";

export function configurationPage(view) {
  const list = table(view, {
    label: "Configuration", search: "Filter options", sort: "name", rowKey: (one) => one.name, perPage: 100,
    load: local((signal) => view.api.get("/configuration", {}, signal)),
    columns: [
      { key: "name", label: "Option", sort: true, kind: "main-cell", render: (one) => [h("code", {}, one.name), one.help && h("div", { class: "muted" }, one.help)] },
      { key: "value", label: "Value", render: (one) => h("span", { title: text(one.value) }, setting(one.name, one.value)) },
      { key: "source", label: "Source", sort: true, render: (one) => badge(text(one.source), one.source === "default" ? "" : "info") },
    ],
  });
  return page("Configuration", { lead: "The options of the broker, and the source of each value." }, h("section", { class: "panel", "aria-label": "Configuration" }, list.element));
}
