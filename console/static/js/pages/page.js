// The head of a page, and its parts below.

import { h } from "../dom.js";

/** What a page function returns: a title and an element. `crumbs`: pairs of label and address of the pages above. */
export function page(title, { lead, actions = [], crumbs = [] } = {}, ...parts) {
  const element = h("div", { class: "page" },
    h("div", { class: "page-head" }, h("div", { class: "titles" },
      crumbs.length > 0 && h("nav", { class: "crumbs", "aria-label": "Above" }, crumbs.map(([label, href], number) => [number > 0 && " / ", h("a", { href }, label)])),
      h("h1", { tabindex: -1 }, title), lead && h("p", { class: "lead" }, lead)),
    actions.length > 0 && h("div", { class: "actions" }, actions)), parts);
  hideBelowLoading(element);
  return { title, element };
}

/**
 * Hides what follows a part that still loads, so that it does not move when the part has arrived. A rule with `:has()` and a sibling would say the
 * same, but Chromium sometimes leaves the siblings without a layout.
 */
function hideBelowLoading(element) {
  const update = () => {
    let isLoading = false;
    for (const part of element.children) {
      part.classList.toggle("waiting", isLoading);
      isLoading ||= part.querySelector(".skeleton") !== null;
    }
  };
  new MutationObserver(update).observe(element, { childList: true, subtree: true });
  update();
}
