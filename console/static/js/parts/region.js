// A part of a page that loads its data: a skeleton first, then the content or the error, and a fresh content after changes.

import { h, keepingFocus, put } from "../dom.js";
import { failed, loading } from "./basics.js";

/**
 * *load(signal)* fetches the data; *paint(data)* returns a node for it. A *frame*, an object with `element` and `update(data)`, is shown in place
 * of the skeleton, so that nothing moves when the data arrives.
 * Later errors of the connection keep the content: the banner of the page reports them.
 */
export function region(view, { load, paint, lines, frame }) {
  const element = h("div", {}, frame ? frame.element : loading(lines));
  let isShown = false;
  let running = null;

  async function reload() {
    running?.abort();
    const current = new AbortController();
    running = current;
    const stop = () => current.abort();
    view.signal.addEventListener("abort", stop, { once: true });
    try {
      const data = await load(current.signal);
      if (current.signal.aborted) return;
      frame?.update(data);
      if (!frame) keepingFocus(() => put(element, paint(data)));
      else if (frame.element.parentNode !== element) put(element, frame.element);
      isShown = true;
    } catch (error) {
      if (current.signal.aborted || error.status === 401) return;
      if (isShown && error.isUnreachable) return;
      isShown = false;
      element.style.setProperty("min-height", `${element.offsetHeight}px`);  // what follows stays where it is
      put(element, failed(error, reload));
    } finally {
      if (!current.signal.aborted) element.removeAttribute("aria-busy");
      view.signal.removeEventListener("abort", stop);
    }
  }

  element.setAttribute("aria-busy", "true");
  reload();
  view.onRefresh(reload);
  return { element, reload };
}
