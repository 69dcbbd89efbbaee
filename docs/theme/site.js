// Regions that scroll are reached by keyboard, and the search has a name. The theme wraps tables while it loads.
const scrolling = ".md-typeset__scrollwrap, .md-typeset pre > code";
const reach = () => {
  document.querySelectorAll(scrolling).forEach((region) => region.tabIndex === 0 || (region.tabIndex = 0));
  document.querySelectorAll(".md-code__nav").forEach((bar, place) => bar.setAttribute("aria-label", `Code ${place + 1}`));
};
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
// Each list of links has a name of its own: that of its section behind those of the sections around it.
const lists = [...document.querySelectorAll("nav.md-nav")];
const own = (list) =>
  list.getAttribute("aria-label") ?? document.getElementById(list.getAttribute("aria-labelledby"))?.textContent.trim();
const around = (list) => (list ? [...around(list.parentElement.closest("nav.md-nav")), own(list)] : []);
const names = lists.map((list) => around(list).join(": "));
lists.forEach((list, place) => {
  list.removeAttribute("aria-labelledby");
  list.setAttribute("aria-label", names[place]);
});
// The theme takes the keyboard from code that fits, and does not give it back when the window becomes narrow.
const changes = { childList: true, subtree: true, attributeFilter: ["tabindex"] };
new MutationObserver(reach).observe(document.body, changes);
reach();
