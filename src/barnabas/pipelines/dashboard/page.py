"""What the dashboard's server sends to browsers beside figures: the page, its script, and what
browsers may do with them.

The script is a file of its own, because the policy lets no script run that stands in a page:
a value of a result that got into the page as markup would have no effect. Plotly sets styles
in the page.
"""

__all__ = ["HEADERS", "PAGE", "SCRIPT"]

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
}
"""The headers of every answer."""

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{name}</title>
<meta name="viewport" content="width=device-width">
<style>
body { font-family: system-ui, sans-serif; margin: 1rem; color: #222 }
header { display: flex; gap: 1rem; align-items: baseline }
#charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 34rem), 1fr)); gap: 1rem }
.chart { min-height: 26rem; min-width: 0; overflow: hidden; border: 1px solid #ddd; border-radius: 6px }
.problem { padding: 1rem; color: #a00; white-space: pre-wrap }
#state { color: #666 }
</style></head><body>
<header><h1>{name}</h1><span id="state">reading</span></header>
<div id="charts"></div>
<script src="/plotly.js"></script>
<script src="/page.js"></script>
</body></html>
"""
SCRIPT = """const charts = document.getElementById("charts"), state = document.getElementById("state");
const sizes = new ResizeObserver(entries => {
  for (const entry of entries) if (entry.target.className === "chart" && entry.target.data) Plotly.Plots.resize(entry.target);
});
let last = "";
function placeOf(number) {
  let place = document.getElementById("chart-" + number);
  if (!place) {
    place = document.createElement("div");
    place.id = "chart-" + number;
    charts.append(place);
    sizes.observe(place);
  }
  return place;
}
async function refresh() {
  try {
    const text = await (await fetch("/figures.json")).text();
    const answer = JSON.parse(text);
    if (text !== last) {
      const places = answer.charts.map((chart, number) => placeOf(number));  // all before the first is drawn in its width
      answer.charts.forEach((chart, number) => {
        const place = places[number];
        if (chart.problem) {
          Plotly.purge(place);
          place.className = "chart problem";
          place.textContent = chart.title + ": " + chart.problem;
        } else {
          if (place.className !== "chart") place.textContent = "";
          place.className = "chart";
          Plotly.react(place, chart.figure.data, chart.figure.layout, {responsive: true});
        }
      });
      last = text;
    }
    const rows = Object.values(answer.rows).map(count => count.toLocaleString("en") + " rows");
    state.textContent = rows.join(", ") + " at " + new Date().toLocaleTimeString();
  } catch (error) {
    state.textContent = "no answer from the dashboard's server: " + error.message;
  }
  setTimeout(refresh, 2000);
}
refresh();
"""
