// What each policy does about a pod: those that act on it first, the others folded.
const VERDICTS = {
  Acts: ["changed", "Acts"], Shadowed: ["same", "Shadowed"], Audits: ["audit", "Audit only"],
  ChangesNothing: ["same", "Unchanged"], NotMatched: ["same", "No match"],
};

function matchViews({ policyMatches }) {
  const matching = policyMatches.filter(({ verdict }) => verdict !== "NotMatched");
  const others = policyMatches.filter(({ verdict }) => verdict === "NotMatched");
  const views = [];
  if (matching.length) views.push(make("ul", "entries", ...matching.map(matchView)));
  if (others.length) {
    const title = `${count(others.length, "policy")} ${others.length === 1 ? "does" : "do"} not match`;
    views.push(make("details", "others", make("summary", "", title.replace("policys", "policies")),
      make("ul", "entries", ...others.map(matchView))));
  }
  return views.length ? views : [make("p", "muted", "No policy could be compared with this pod.")];
}

function matchView({ policy, verdict, acting, shadowed, skipped, why }) {
  const [state, text] = VERDICTS[verdict] ?? ["same", verdict];
  const name = make("p", "code", make("b", "", policy));
  const parts = [];
  if (acting.length) parts.push(`${verdict === "Audits" ? "Would set" : "Sets"} ${acting.join(", ")}.`);
  for (const { remedy, by } of shadowed) parts.push(`${by} sets ${remedy} first.`);
  for (const { remedy, reasons } of skipped) parts.push(`${remedy}: ${reasons.join(", ")}.`);
  if (why) parts.push(`${why[0].toUpperCase()}${why.slice(1)}.`);
  return make("li", "", make("div", "states", chip(state, text)),
    make("div", "what", name, make("p", "", parts.join(" "))));
}
