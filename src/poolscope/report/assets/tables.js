"use strict";
// Tables: sorted by their headings, searched, and folded to their first rows.
(function (poolscope) {
  const { element, whole, number, corpusText, csv, download, fileName } = poolscope;
  const FIRST = 15; // rows shown before "show all"
  const tables = [];

  const missing = (value) => value === null;
  const words = new Intl.Collator("en", { numeric: true, sensitivity: "base" });

  // A cell as plain text: it is a number, true or false, a text, a text that was cut, or null.
  const asText = (value) => (value === null ? "" : String(value.text ?? value));
  const isLong = (value) => asText(value).length > 40;

  function compare(a, b) {
    return typeof a === "number" && typeof b === "number" ? a - b : words.compare(asText(a), asText(b));
  }

  function content(value) {
    if (value === null || typeof value === "number") return number(value);
    return typeof value === "boolean" ? (value ? "yes" : "no") : corpusText(value);
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
      const value = (k) => spec.rows[k][state.column];
      const sign = state.falling ? -1 : 1; // what is not known stands last either way
      return rows.sort(
        (a, b) =>
          missing(value(a)) - missing(value(b)) ||
          (missing(value(a)) ? 0 : sign * compare(value(a), value(b))) ||
          a - b,
      );
    }

    function cell(value, c) {
      const kind = spec.numeric[c] ? "numeric" : value === null ? "unknown" : isLong(value) ? "long" : null;
      return element("td", { class: kind, "data-label": spec.columns[c] }, content(value));
    }

    function line(k) {
      if (!made.has(k)) made.set(k, element("tr", null, ...spec.rows[k].map((value, c) => cell(value, c))));
      return made.get(k);
    }

    function show() {
      const rows = chosen();
      const shown = state.open ? rows : rows.slice(0, FIRST);
      body.replaceChildren(...shown.map(line));
      if (!rows.length)
        body.append(
          element("tr", null, element("td", { colspan: spec.columns.length, class: "unknown" }, "No row holds this.")),
        );
      count.textContent =
        rows.length < spec.rows.length
          ? `${whole(rows.length)} of ${whole(spec.rows.length)} rows`
          : `${whole(rows.length)} rows`;
      more.hidden = rows.length <= FIRST;
      more.textContent = state.open ? `Show the first ${FIRST} rows` : `Show all ${whole(rows.length)} rows`;
      headings.forEach((heading, c) =>
        heading.setAttribute("aria-sort", state.column !== c ? "none" : state.falling ? "descending" : "ascending"),
      );
    }

    // Numbers fall first, because the largest is what people look for; a third press gives the order of the file.
    function sort(c) {
      const first = spec.numeric[c];
      if (state.column !== c) Object.assign(state, { column: c, falling: first });
      else if (state.falling === first) state.falling = !first;
      else state.column = null;
      show();
    }

    const headings = spec.columns.map((name, c) =>
      element(
        "th",
        { scope: "col", class: spec.numeric[c] ? "numeric" : null, "aria-sort": "none" },
        element(
          "button",
          { type: "button", onclick: () => sort(c) },
          name,
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
    host.append(
      element(
        "div",
        { class: "table" },
        element("div", { class: "table-top" }, element("h3", null, spec.name), search, count, save),
        element(
          "div",
          { class: "table-scroll", tabindex: "0", role: "region", "aria-label": spec.name },
          element(
            "table",
            { class: spec.rows.some((row) => row.some(isLong)) ? "with-texts" : null },
            element("thead", null, element("tr", null, ...headings)),
            body,
          ),
        ),
        more,
      ),
    );
    let before = false; // whether the reader had all rows open, while the page is printed so
    tables.push((open) => {
      if (open) before = state.open;
      state.open = open || before;
      show();
    });
    show();
  }

  Object.assign(poolscope, { table, unfoldTables: (open) => tables.forEach((unfold) => unfold(open)) });
})(window.poolscope);
