// A part of a page that loads its data: a skeleton first, then the content or the error, and a fresh content after changes.

import { h, keepingFocus, put } from "../dom.js";
import { failed, loading } from "./basics.js";
import { latest } from "./latest.js";

/**
 * *load(signal)* fetches the data; *paint(data)* returns a node for it. A *frame*, an object with `element` and `update(data)`, is shown in place
 * of the skeleton, so that nothing moves when the data arrives.
 * Later errors of the connection keep the content: the banner of the page reports them.
 */
export function region(view, { load, paint, lines, frame }) {
  const element = h("div", {}, frame ? frame.element : loading(lines));
  let isShown = false;
  const reload = latest(view, {
    load,
    show(data) {
      frame?.update(data);
      if (!frame) keepingFocus(() => put(element, paint(data)));
      else if (frame.element.parentNode !== element) put(element, frame.element);
      isShown = true;
    },
    fail(error) {
      if (isShown && error.isUnreachable) return;
      isShown = false;
      element.style.setProperty("min-height", `${element.offsetHeight}px`);  // what follows stays where it is
      put(element, failed(error, reload));
    },
    done() { element.removeAttribute("aria-busy"); },
  });

  element.setAttribute("aria-busy", "true");
  reload();
  view.onRefresh(reload);
  return { element, reload };
}
