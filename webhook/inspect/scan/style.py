"""The style sheet of the HTML report of a scan. It has colours for light and dark screens."""

from __future__ import annotations

STYLE = """
:root {
  color-scheme: light dark;
  --text: #1b1f24; --muted: #57606a; --line: #d0d7de; --page: #fff; --box: #f6f8fa;
  --affected: #b3261e; --partly: #bf6a02; --unverified: #5b7fa6; --free: #c9d1d9; --none: #1a7f37;
  --link: #0550ae;
}
@media (prefers-color-scheme: dark) {
  :root {
    --text: #e6edf3; --muted: #9da7b3; --line: #30363d; --page: #0d1117; --box: #161b22;
    --affected: #ff7b72; --partly: #e3a04a; --unverified: #7d9cc0; --free: #3d4653; --none: #56d364;
    --link: #79c0ff;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 70rem; padding: 1.5rem;
  background: var(--page); color: var(--text); font: 1rem/1.5 system-ui, sans-serif;
}
h1 { font-size: 1.5rem; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.2rem; margin: 1.5rem 0 .5rem; }
h3 { font-size: 1rem; margin: 1rem 0 .25rem; }
p { margin: .25rem 0; }
a, summary { color: var(--link); }
summary { cursor: pointer; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: .5rem 0; }
th, td {
  border-bottom: 1px solid var(--line); padding: .3rem .6rem .3rem 0;
  text-align: left; vertical-align: top;
}
td { overflow-wrap: break-word; }
td.n, th.n { text-align: right; padding-right: 1.2rem; }
.findings { table-layout: fixed; }
.findings td { overflow-wrap: anywhere; }
.findings th:nth-child(1) { width: 10%; }
.findings th:nth-child(2) { width: 18%; }
.findings th:nth-child(3) { width: 4rem; }
.findings th:nth-child(4) { width: 7rem; }
.findings th:nth-child(5) { width: 5.5rem; }
@media (max-width: 45rem) {
  .findings, .findings tbody, .findings tr, .findings td { display: block; }
  .findings thead { display: none; }
  .findings tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
  .findings td, .findings td.n { border: 0; padding: .1rem 0; text-align: left; }
  .findings td::before { content: attr(data-head) ": "; color: var(--muted); }
}
pre {
  background: var(--box); border: 1px solid var(--line); border-radius: 6px;
  padding: .75rem; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85rem;
}
code { font-family: ui-monospace, monospace; font-size: .85rem; }
ul { margin: .25rem 0; padding-left: 1.2rem; }
.muted { color: var(--muted); }
.found { color: var(--affected); font-weight: 600; }
.none { color: var(--none); }
details { margin: .5rem 0; }
.chart {
  display: grid; grid-template-columns: minmax(5rem, max-content) 1fr max-content;
  gap: .35rem .75rem; align-items: center; margin: .5rem 0; font-size: .85rem;
}
.chart span { overflow-wrap: anywhere; }
.chart svg { width: 100%; height: 1.1rem; }
.chart svg.axis { height: 2rem; border-bottom: 1px solid var(--line); }
.legend, .ends { color: var(--muted); font-size: .8rem; }
.legend svg { width: .8rem; height: .8rem; margin: 0 .3rem 0 0; }
.legend span { margin-right: 1rem; }
.ends { display: flex; justify-content: space-between; flex-wrap: wrap; }
svg .affected, svg .mark { fill: var(--affected); }
svg .partly { fill: var(--partly); }
svg .possible { fill: var(--partly); fill-opacity: .6; }
svg .unverified { fill: var(--unverified); }
svg .free { fill: var(--free); }
"""
