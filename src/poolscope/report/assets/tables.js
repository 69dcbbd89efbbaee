"use strict";
// Tables: sorted by their headings, searched, and folded to their first rows.
(function (poolscope) {
  const { element, whole, readable, number, numberWithInterval, corpusText, csv, download, fileName } = poolscope;
  const FIRST = 15; // rows shown before "show all"
  const FIRST_LONG = 6; // the same of rows that are texts of several lines
  const LEVELS = { ok: "OK", unchecked: "Unchecked", watch: "Watch", repair: "Repair" };
  const DRAWING = "http://www.w3.org/2000/svg";
  const tables = [];

  const missing = (value) => value === null;
  const words = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

  // A cell as plain text: it is a number, true or false, a text, a text that was cut, or null.
  const asText = (value) => (value === null ? "" : String(value.text ?? value));
  const isLong = (value) => asText(value).length > 40;
  const SHORT = 24; // characters of a text that is not broken over lines

  function compare(a, b) {
    return typeof a === "number" && typeof b === "number" ? a - b : words.compare(asText(a), asText(b));
  }

  function content(value) {
    if (value === null || typeof value === "number") return number(value);
    return typeof value === "boolean" ? (value ? "yes" : "no") : corpusText(value);
  }

  function badge(level) {
    const sign = document.createElementNS(DRAWING, "svg");
    const use = document.createElementNS(DRAWING, "use");
    use.setAttribute("href", `#Level-${level}`);
    sign.setAttribute("viewBox", "0 0 16 16");
    sign.setAttribute("aria-hidden", "true");
    sign.append(use);
    return element("span", { class: `badge ${level}` }, sign, LEVELS[level]);
  }

  // A command whose lines end between words, never at the hyphens of an option; other texts as they are.
  function unbroken(text) {
    if (!text.startsWith("poolscope ")) return [text];
    return text.split(" ").flatMap((word, k) => [k ? " " : "", element("span", { class: "word" }, word)]);
  }

  const headed = (view) =>
    [view.numeric ? "numeric" : "", view.heading.length > 22 ? "wordy" : ""].join(" ").trim() || null;

  // A cell as it is shown: the value, and whatever the view puts beside it.
  function cell(row, view) {
    const value = row[view.column];
    const part = (name) => (view[name] === null ? null : row[view[name]]);
    const inside = [];
    if (part("level") in LEVELS) inside.push(badge(part("level")), " ");
    if (view.level === view.column) inside.length = 1; // the badge says it all
    else if (typeof value === "number") {
      const [shown, interval] = numberWithInterval(value, part("low"), part("high"));
      inside.push(shown);
      if (interval) inside.push(" ", element("span", { class: "interval" }, interval));
    } else inside.push(content(value));
    if (part("below") !== null)
      inside.push(element("bdi", { class: "below", dir: "auto" }, ...unbroken(readable(asText(part("below"))))));
    const short = typeof value === "string" && value.length <= SHORT;
    const kind =
      view.numeric || typeof value === "number"
        ? "numeric"
        : value === null
          ? "unknown"
          : isLong(value)
            ? "long"
            : short
              ? "short"
              : null;
    return element("td", { class: kind, "data-label": view.heading }, ...inside);
  }

  // A box that is wider than its place says so at its edge.
  function scrolled(box, frame) {
    const tell = () => {
      const left = box.scrollWidth - box.clientWidth - Math.abs(box.scrollLeft);
      frame.toggleAttribute("data-more", left > 2);
    };
    box.addEventListener("scroll", tell, { passive: true });
    new ResizeObserver(tell).observe(box);
    return tell;
  }

  function table(host, spec, page) {
    const state = { column: null, falling: false, search: "", open: false };
    const body = element("tbody");
    const count = element("span", { class: "count", role: "status" });
    const more = element("button", {
      type: "button",
      class: "quiet more-rows",
      onclick: () => {
        state.open = !state.open;
        show();
      },
    });
    const searched = spec.rows.map((row) => row.map(asText).join("\n").toLowerCase());
    const made = new Map(); // rows are built once, when they are first shown

    function chosen() {
      const wanted = state.search.trim().toLowerCase();
      const rows = spec.rows.map((_, k) => k).filter((k) => !wanted || searched[k].includes(wanted));
      if (state.column === null) return rows;
      const value = (k) => spec.rows[k][spec.view[state.column].column];
      const sign = state.falling ? -1 : 1; // what is not known stands last either way
      return rows.sort(
        (a, b) =>
          missing(value(a)) - missing(value(b)) ||
          (missing(value(a)) ? 0 : sign * compare(value(a), value(b))) ||
          a - b,
      );
    }

    function opener(row) {
      const known = poolscope.pairRow(...spec.pair.map((c) => asText(row[c])));
      if (known === undefined) return element("td", { class: "unknown", "data-label": "Pair" }, "–");
      const button = element(
        "button",
        {
          type: "button",
          class: "quiet open-pair",
          "aria-label": "Show this pair in the explorer",
          onclick: () => poolscope.openPair(known, button),
        },
        "Show",
      );
      return element("td", { class: "opener" }, button);
    }

    const named = spec.columns.indexOf("id");
    const onMap = named >= 0 && spec.rows.some((row) => poolscope.mapPlace(asText(row[named])) !== undefined);

    function locator(row) {
      const place = poolscope.mapPlace(asText(row[named]));
      if (place === undefined) return element("td", { class: "unknown", "data-label": "Map" }, "–");
      const attributes = { type: "button", class: "quiet", "aria-label": "Show this text on the map" };
      return element(
        "td",
        { class: "opener" },
        element("button", { ...attributes, onclick: () => poolscope.showOnMap(place) }, "Map"),
      );
    }

    function line(k) {
      const row = spec.rows[k];
      if (!made.has(k))
        made.set(
          k,
          element(
            "tr",
            null,
            spec.pair ? opener(row) : null,
            ...spec.view.map((view) => cell(row, view)),
            onMap ? locator(row) : null,
          ),
        );
      return made.get(k);
    }

    const tall = (row) => spec.view.some((view) => asText(row[view.column]).length > 100);
    const texts = spec.rows.slice(0, FIRST).filter(tall).length > FIRST / 2;
    const first = texts ? FIRST_LONG : FIRST;

    function show() {
      const rows = chosen();
      const shown = state.open ? rows : rows.slice(0, first);
      body.replaceChildren(...shown.map(line));
      if (!rows.length)
        body.append(
          element("tr", null, element("td", { colspan: spec.view.length + 1, class: "unknown" }, "No row holds this.")),
        );
      count.textContent =
        rows.length < spec.rows.length
          ? `${whole(rows.length)} of ${whole(spec.rows.length)} rows`
          : `${whole(rows.length)} row${rows.length === 1 ? "" : "s"}`;
      more.hidden = rows.length <= first;
      more.textContent = state.open ? `Show the first ${first} rows` : `Show all ${whole(rows.length)} rows`;
      headings.forEach((heading, c) =>
        heading.setAttribute("aria-sort", state.column !== c ? "none" : state.falling ? "descending" : "ascending"),
      );
      tell();
    }

    // Numbers fall first, because the largest is what people look for; a third press gives the order of the file.
    function sort(c) {
      const first = spec.view[c].numeric;
      if (state.column !== c) Object.assign(state, { column: c, falling: first });
      else if (state.falling === first) state.falling = !first;
      else state.column = null;
      show();
    }

    const headings = spec.view.map((view, c) =>
      element(
        "th",
        { scope: "col", class: headed(view), "aria-sort": "none" },
        element(
          "button",
          { type: "button", onclick: () => sort(c) },
          `${view.heading}\u00a0`,
          element("span", { class: "arrow", "aria-hidden": "true" }),
        ),
      ),
    );
    const search = !spec.searchable
      ? null
      : element("input", {
          type: "search",
          placeholder: "Search",
          "aria-label": `Search in ${spec.name}`,
          autocomplete: "off",
          oninput: (event) => {
            state.search = event.target.value;
            show();
          },
        });
    const save = element(
      "button",
      {
        type: "button",
        class: "quiet",
        "data-download": "csv",
        "aria-label": `Download ${spec.name} as CSV`,
        onclick: () =>
          download(
            `${fileName(page, spec.name)}.csv`,
            "text/csv",
            csv(
              spec.columns,
              chosen().map((k) => spec.rows[k]),
            ),
          ),
      },
      "CSV",
    );
    const opens = spec.pair ? element("th", { scope: "col", class: "opener" }, "Pair") : null;
    const locates = onMap ? element("th", { scope: "col", class: "opener" }, "Map") : null;
    const withTexts = spec.rows.some((row) => spec.view.some((view) => isLong(row[view.column])));
    const box = element(
      "div",
      { class: "table-scroll", tabindex: "0", role: "region", "aria-label": spec.name },
      element(
        "table",
        { class: withTexts ? "with-texts" : null },
        element("thead", null, element("tr", null, opens, ...headings, locates)),
        body,
      ),
    );
    const frame = element("div", { class: "table-frame" }, box);
    const tell = scrolled(box, frame);
    const top = element("div", { class: "table-top" }, element("h3", null, spec.name), search, count, save);
    host.append(element("div", { class: "table" }, top, frame, more));
    if (search) tables.push({ spec, host, look: (words) => { search.value = words; state.search = words; show(); } });
    show();
  }

  // The table that holds a text, searched for it; null where none does.
  function findInTables(id) {
    const home = tables.find(({ spec }) => {
      const at = spec.columns.indexOf("id");
      return at >= 0 && spec.rows.some((row) => asText(row[at]) === id);
    });
    if (!home) return null;
    for (const rest of [home.host.closest(".rest")]) if (rest) rest.open = true;
    home.look(id);
    return home.host;
  }

  Object.assign(poolscope, { table, findInTables });
})(window.poolscope);
