// Forms from a list of fields, each with its help.

import { h, newId } from "../dom.js";
import { button, noteBox } from "./basics.js";

/**
 * A field: `name`, `label`, `help`, `type` (text, number, password, checkbox, select, textarea), `value`, `required`, `options`, `suggestions`.
 * `check(value, valueOf)` returns why a value is invalid, or an empty text; `valueOf(name)` is the value of another field.
 * An error of *submit* with the name of a field is shown at that field.
 * A list of fields in place of a field is a row of them; an object with `title` and `fields` is a part that can be opened.
 */
export function form({ fields, label, submit, cancel, kind = "primary" }) {
  const inputs = new Map();
  const problem = h("div", { role: "alert" });
  const go = h("button", { type: "submit", class: `button ${kind}` }, label);
  const element = h("form", { class: "form", novalidate: true, onsubmit: async (event) => {
    event.preventDefault();
    if (!check(inputs)) return;
    go.disabled = true;
    problem.replaceChildren();
    try {
      await submit(values(inputs));
    } catch (error) {
      if (error.status === 401) return;
      const wrong = inputs.get(error.field);
      if (wrong) refuse(wrong, error.message.replace(`${error.field}: `, ""));
      else problem.replaceChildren(noteBox("bad", error.message));
    } finally {
      go.disabled = false;
    }
  } }, fields.map((one) => part(one, inputs)), problem, h("div", { class: "row" }, go, cancel && button("Cancel", cancel, { kind: "quiet" })));
  return { element, input: (name) => inputs.get(name).control };
}

function part(given, inputs) {
  if (Array.isArray(given)) return h("div", { class: "pair" }, given.map((one) => part(one, inputs)));
  if (given.fields) return h("details", { open: given.open }, h("summary", {}, given.title), part(given.fields, inputs));
  return field(given, inputs);
}

function field(given, inputs) {
  const id = newId();
  const help = given.help && h("div", { class: "help", id: `${id}h` }, given.help);
  const problem = h("div", { class: "problem", id: `${id}p`, hidden: true });
  const common = { id, name: given.name, required: given.required, "aria-describedby": `${help ? `${id}h ` : ""}${id}p` };
  const control = controlOf(given, common);
  inputs.set(given.name, { given, control, problem });
  if (given.type === "checkbox") {
    return h("div", { class: "field" }, h("div", { class: "check" }, control, h("label", { for: id }, given.label)), help, problem);
  }
  const list = given.suggestions && h("datalist", { id: `${id}l` }, given.suggestions.map((value) => h("option", { value })));
  if (list) control.setAttribute("list", `${id}l`);
  return h("div", { class: "field" }, h("label", { for: id }, given.label), control, list, help, problem);
}

function controlOf(given, common) {
  const { type = "text", value = "" } = given;
  if (type === "checkbox") return h("input", { ...common, type, checked: Boolean(value) });
  if (type === "select") {
    return h("select", { ...common, class: "select" }, given.options.map(([key, text]) => h("option", { value: key, selected: key === value }, text)));
  }
  if (type === "textarea") {
    const area = h("textarea", { ...common, class: "textarea", rows: given.rows, spellcheck: "false" });
    area.value = value;
    return area;
  }
  const control = h("input", { ...common, type: type === "number" ? "text" : type, inputmode: type === "number" ? "numeric" : null, class: "input",
    autocomplete: given.autocomplete ?? "off", spellcheck: "false", placeholder: given.placeholder });
  control.value = value;
  return control;
}

function check(inputs) {
  const valueOf = (name) => inputs.get(name).control.value;
  let first = null;
  for (const one of inputs.values()) {
    const { given, control } = one;
    let reason = "";
    if (given.required && !control.value.trim() && given.type !== "checkbox") reason = "This is required.";
    else if (given.type === "number" && control.value.trim() && !/^-?\d+$/.test(control.value.trim())) reason = "Enter a whole number.";
    else reason = given.check?.(control.value, valueOf) ?? "";
    mark(one, reason);
    if (reason && !first) first = control;
  }
  if (first) show(first);
  return !first;
}

function mark({ control, problem }, reason) {
  problem.textContent = reason;
  problem.hidden = !reason;
  control.setAttribute("aria-invalid", String(Boolean(reason)));
}

function refuse(input, reason) {
  mark(input, reason);
  show(input.control);
}

function show(control) {
  control.closest("details")?.setAttribute("open", "");
  control.focus();
}

/** What was entered, by name; empty fields are left out. */
function values(inputs) {
  const found = {};
  for (const [name, { given, control }] of inputs) {
    if (given.type === "checkbox") found[name] = control.checked;
    else if (control.value.trim() === "" && !given.keepEmpty) continue;
    else found[name] = given.type === "number" ? Number(control.value.trim()) : given.type === "textarea" || given.type === "password" ? control.value : control.value.trim();
  }
  return found;
}
