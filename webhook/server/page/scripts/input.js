// The input of a preview: the workload, the fields, and the policies that the user has edited.
const FIELDS = ["namespace", "labels", "path"];

function currentInput() {
  const fields = FIELDS.map((id) => [id, $(id).value.trim()]);
  return { workload: $("workload").value, ...Object.fromEntries(fields), policies: editedPolicies() };
}

function showInput({ workload, policies, ...fields }, options) {
  markExample(null);
  setPolicies(policies);
  for (const id of FIELDS) $(id).value = fields[id];
  showLabelsOfNamespace();
  // Without focus, as the field gets it by its attribute.
  if (options?.atOpening) {
    $("workload").value = workload;
    $("workload").setSelectionRange(0, 0);
  } else typeOver($("workload"), workload);
  preview(options);
}

// The texts in the body that was sent last, each with its first line there.
let sentTexts = [];

function joinTexts() {
  const workload = $("workload");
  const areas = [{ area: workload, name: "" }];
  // Without a workload, the server's message about an empty body is the right one.
  if (workload.value.trim()) areas.push(...editedAreas());
  let body = "";
  let line = 1;
  sentTexts = areas.map(({ area, name }, index) => {
    if (index) body += "---\n";
    const start = line + (index ? 1 : 0);
    const text = areas.length > 1 ? area.value.replace(/\n?$/, "\n") : area.value;
    body += text;
    line = start + text.split("\n").length - 1;
    return { area, name, start };
  });
  return body;
}

// The text that holds a line of the body, and the number of the line there.
function placeOf(bodyLine) {
  const { area, name, start } = sentTexts.findLast((text) => text.start <= bodyLine) ?? sentTexts[0];
  const line = Math.min(bodyLine - start + 1, area.value.split("\n").length);
  return { area, name, line };
}

function placeTitle({ name, line }) {
  return name ? `${name}, line ${line}` : `Line ${line}`;
}

function goTo({ area, line }) {
  const lines = area.value.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, text) => sum + text.length + 1, 0);
  const details = area.closest("details");
  if (details) details.open = true;
  area.focus();
  area.setSelectionRange(start, start + (lines[line - 1] ?? "").length);
  area.scrollTop = (line - 4) * parseFloat(getComputedStyle(area).lineHeight);
  area.scrollLeft = 0;
}

function lineButton(bodyLine) {
  const place = placeOf(bodyLine);
  return makeButton(placeTitle(place), () => goTo(place));
}
