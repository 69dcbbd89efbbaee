"use strict";
// The texts as points of a plane: coloured by what the answers say of them, searched, read one by one.
(function (poolscope) {
  const { element, whole, readable, number, chart } = poolscope;
  const GREY = "#b4bac2";
  const MOST_NAMED = 8;

  const unpacked = (text) => new Int16Array(Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)).buffer);
  const inert = (label) => readable(label).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

  // Points by ids, for tables; without a map there are none.
  poolscope.mapPlace = () => undefined;
  poolscope.indexMap = (data) => {
    const places = new Map(data ? data.ids.map((id, place) => [id, place]) : []);
    poolscope.mapPlace = (id) => places.get(id);
  };

  // A blue that grows darker with the rank of a number, so that one outlier does not take all colours.
  function shades(values) {
    const known = values.filter((value) => value !== null).sort((a, b) => a - b);
    const least = known[0];
    const most = known.at(-1);
    return values.map((value) => (value === null ? null : most > least ? (value - least) / (most - least) : 0));
  }

  // The groups of points: what is not marked first, so that what is lies on top.
  function groups(colour) {
    const all = colour.values.map((_, place) => place);
    if (colour.kind === "flag") {
      const marked = all.filter((place) => colour.values[place]);
      const name = `${colour.named} (${whole(marked.length)})`;
      return [
        { name: `others (${whole(all.length - marked.length)})`, places: all.filter((p) => !colour.values[p]), color: GREY, size: 6 },
        { name, places: marked, color: poolscope.mark, size: 9, symbol: "diamond" },
      ];
    }
    if (colour.kind === "name") {
      const names = [...new Set(colour.values)].slice(0, MOST_NAMED + 2);
      return names.map((name, k) => ({
        name: String(name),
        places: all.filter((place) => colour.values[place] === name),
        color: name === "others" ? GREY : poolscope.colorway[k % poolscope.colorway.length],
        size: 7,
      }));
    }
    return [{ name: colour.named, places: all, shades: shades(colour.values), size: 7 }];
  }

  function trace(group, x, y, labels, colour) {
    const scale = [
      [0, "#cfe3f3"],
      [0.5, "#4f94c7"],
      [1, "#08306b"],
    ];
    const color = group.shades ? group.places.map((place) => group.shades[place]) : group.color;
    return {
      type: "scatter",
      mode: "markers",
      name: inert(group.name),
      showlegend: !group.shades,
      x: group.places.map((place) => x[place]),
      y: group.places.map((place) => y[place]),
      customdata: group.places,
      text: group.places.map((place) => `${labels[place]}${colour.kind === "flag" ? "" : `<br>${inert(colour.named)}: ${inert(String(colour.values[place] ?? "–"))}`}`),
      hovertemplate: "%{text}<extra></extra>",
      marker: { size: group.size, symbol: group.symbol || "circle", opacity: 0.8, color, ...(group.shades ? { colorscale: scale, cmin: 0, cmax: 1 } : {}) },
    };
  }

  function map(host, data, page) {
    const points = unpacked(data.points);
    const x = data.ids.map((_, place) => points[2 * place]);
    const y = data.ids.map((_, place) => points[2 * place + 1]);
    const labels = data.ids.map((id, place) => inert((data.texts ? data.texts[place] : id).slice(0, 70)));
    const plain = { named: "nothing", kind: "flag", values: data.ids.map(() => false) };
    const colours = [...data.colours, plain];
    const searched = data.ids.map((id, place) => `${id}\n${data.texts ? data.texts[place] : ""}`.toLowerCase());
    const state = { colour: 0, wanted: "", chosen: null };

    const select = element(
      "select",
      { id: "pageMapColour" },
      ...colours.map((colour, k) => element("option", { value: k }, colour.named)),
    );
    const search = element("input", { type: "search", placeholder: "Search", "aria-label": "Search the texts of the map", autocomplete: "off" });
    const status = element("p", { class: "pair-status", role: "status" });
    const card = element("div", { class: "map-card", role: "status" });
    const label = element("label", { for: "pageMapColour" }, "Colour by ");
    const plotHost = element("div", { class: "map-plot", tabindex: "0", role: "group", "aria-label": "Map of the texts: arrow keys go from one text to the next" });
    host.append(element("div", { class: "pair-tools" }, label, select, search, status), element("div", { class: "map-both" }, plotHost, card));

    const hits = () => (state.wanted ? data.ids.map((_, place) => place).filter((place) => searched[place].includes(state.wanted)) : []);

    function figure() {
      const colour = colours[state.colour];
      const traces = groups(colour).map((group) => trace(group, x, y, labels, colour));
      const ring = (places, size, color, name) => ({
        type: "scatter", mode: "markers", name, hoverinfo: "skip", showlegend: false,
        x: places.map((place) => x[place]), y: places.map((place) => y[place]),
        marker: { size, symbol: "circle-open", color, line: { width: 2.5 } },
      });
      traces.push(ring(hits(), 13, "#e69f00", "searched"), ring(state.chosen === null ? [] : [state.chosen], 20, "#000000", "chosen"));
      const axis = { showline: false, showgrid: false, zeroline: false, showticklabels: false, ticks: "" };
      return {
        name: "The texts as a map",
        title: colour.kind === "number" ? `darker: more (${inert(colour.named)})` : "",
        data: traces,
        layout: { height: 540, hovermode: "closest", clickmode: "event", xaxis: { ...axis }, yaxis: { ...axis, scaleanchor: "x" }, legend: { orientation: "h" } },
      };
    }

    function rows() {
      return [["id", "x", "y", ...data.colours.map((one) => one.named)], data.ids.map((id, k) => [id, x[k], y[k], ...data.colours.map((one) => one.values[k])])];
    }

    const drawn = chart(plotHost, figure(), {
      page,
      rows,
      drawn: (plot) => {
        if (plot.dataset.listening) return;
        plot.dataset.listening = "true";
        plot.on("plotly_click", (event) => {
          const point = event.points.find((one) => one.customdata !== undefined);
          if (point) choose(point.customdata);
        });
      },
    });

    function redraw() {
      const found = hits();
      status.textContent = state.wanted ? `${whole(found.length)} of ${whole(data.ids.length)} texts hold this` : `${whole(data.ids.length)} texts`;
      drawn.figure = figure();
      if (drawn.width) drawn.draw();
    }

    function choose(place) {
      state.chosen = place;
      const facts = data.colours.map((one) => {
        const value = one.values[place];
        const said = typeof value === "boolean" ? (value ? "yes" : "no") : typeof value === "number" ? number(value) : value === null ? "–" : String(value);
        return element("div", null, element("dt", null, one.named), element("dd", null, readable(said)));
      });
      const tables = element("button", { type: "button", class: "quiet", onclick: () => {
        const home = poolscope.findInTables(data.ids[place]);
        if (home) home.scrollIntoView({ block: "center" });
        else tables.textContent = "In no table of this page";
      } }, "Find in the tables");
      card.replaceChildren(
        element("bdi", { class: "pair-id", dir: "auto" }, readable(data.ids[place])),
        element("p", null, element("bdi", { class: "corpus", dir: "auto" }, readable(data.texts ? data.texts[place] : "The audit has no texts."))),
        element("dl", null, ...facts),
        tables,
      );
      redraw();
    }

    select.addEventListener("change", () => {
      state.colour = Number(select.value);
      redraw();
    });
    search.addEventListener("input", () => {
      state.wanted = search.value.trim().toLowerCase();
      redraw();
    });
    plotHost.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (!step || event.target !== plotHost) return;
      event.preventDefault();
      const among = state.wanted && hits().length ? hits() : data.ids.map((_, place) => place);
      const at = among.indexOf(state.chosen);
      choose(among[(at + step + among.length) % among.length]);
    });
    poolscope.showOnMap = (place) => {
      choose(place);
      host.scrollIntoView({ block: "start" });
      plotHost.focus({ preventScroll: true });
    };
    redraw();
  }

  Object.assign(poolscope, { map });
})(window.poolscope);
