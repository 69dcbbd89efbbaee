// Regions that scroll are reached by keyboard, and the search has a name. The theme wraps tables while it loads.
const scrolling = ".md-typeset__scrollwrap, .md-typeset pre > code";
const reach = () => document.querySelectorAll(scrolling).forEach((region) => (region.tabIndex = 0));
document.querySelector(".md-search")?.setAttribute("aria-label", "Search");
new MutationObserver(reach).observe(document.body, { childList: true, subtree: true });
reach();
