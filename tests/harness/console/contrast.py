"""The contrast of all visible texts of a page, as WCAG 2.1 defines it."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Page

_MEASURE = """
() => {
  const parse = (text) => {
    const found = text.match(/[\\d.]+/g).map(Number);
    if (text.startsWith("color(")) return [...found.slice(-4, -1).map((one) => one * 255), 1].slice(0, 4);
    return [found[0], found[1], found[2], found.length > 3 ? found[3] : 1];
  };
  const over = (top, below) => top.slice(0, 3).map((one, place) => one * top[3] + below[place] * (1 - top[3]));
  const light = (color) => {
    const linear = (one) => (one <= 0.04045 ? one / 12.92 : ((one + 0.055) / 1.055) ** 2.4);
    const [r, g, b] = color.map((one) => linear(one / 255));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    const layers = [];
    for (let one = element; one; one = one.parentElement) {
      const color = parse(getComputedStyle(one).backgroundColor);
      layers.push(color);
      if (color[3] === 1) break;
    }
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const low = [];
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const element = node.parentElement, style = getComputedStyle(element);
    const name = element.tagName.toUpperCase();
    const isShown = style.visibility !== "hidden" && element.getClientRects().length;
    if (!node.textContent.trim() || ["SCRIPT", "NOSCRIPT", "TITLE", "OPTION"].includes(name)) continue;
    if (!isShown || element.closest("[disabled], .visually-hidden, .dim")) continue;
    const background = behind(element);
    const color = over(parse(element.closest("svg") ? style.fill : style.color), background);
    const [high, deep] = [light(color), light(background)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (deep + 0.05), size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    const text = node.textContent.trim().slice(0, 40);
    if (ratio < (isLarge ? 3 : 4.5)) low.push(`${text}: ${ratio.toFixed(2)} (${style.color} on ${background})`);
  }
  return low;
}
"""


def low_contrast(page: Page) -> list[str]:
    """Return the visible texts of *page* whose contrast is below 4.5, or below 3 for large ones."""
    found: list[str] = page.evaluate(_MEASURE)
    return found
