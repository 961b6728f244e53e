function makeError(title, message, field = $("workload"), status = 0) {
  return Object.assign(new Error(message), { title, field, status });
}

function errorFrom(response, detail) {
  const message = typeof detail === "string" ? detail
    : Array.isArray(detail) ? detail.map((part) => part?.msg ?? JSON.stringify(part)).join("\n")
    : JSON.stringify(detail);
  const { status } = response;
  const code = [status, response.statusText].join(" ").trim();
  const error = (title, text = message, field) => makeError(title, text, field, status);
  if (status === 401) return error(`Enter a valid bearer token below (${code})`, message, $("token"));
  if (status === 403) {
    return error(`The token does not allow previews (${code})`, message, $("token"));
  }
  if (status === 413 || status === 422) return error("This input cannot be previewed");
  if (status === 429) return error("The server makes other previews", message);
  return error(`The server failed (${code})`, message.slice(0, 2000));
}

const LINE_OF_BODY = /^body:(\d+):/;

function showError(error) {
  for (const area of document.querySelectorAll("[aria-invalid]")) area.removeAttribute("aria-invalid");
  $("error").hidden = !error;
  $("error").replaceChildren();
  if (!error) return;
  const text = error.message || "The server gave no reason.";
  const found = LINE_OF_BODY.exec(text);
  const place = found && placeOf(Number(found[1]));
  const shown = text.replace(new RegExp(LINE_OF_BODY, "gm"), (prefix, line) => {
    const { name } = placeOf(Number(line));
    return name ? `${placeTitle(placeOf(Number(line)))}:` : prefix;
  });
  $("error").append(make("p", "label", error.title ?? "Error in this page"), make("p", "mono", shown));
  (place?.area ?? error.field ?? $("workload")).setAttribute("aria-invalid", "true");
  if (error.field === $("token")) showTokenField();
  if (place) {
    const title = placeTitle(place);
    $("error").append(makeButton(`Go to ${place.name ? title : title.toLowerCase()}`, () => goTo(place)));
  }
  $("error").scrollIntoView({ block: "nearest" });
}

function showTokenField() {
  $("token-field").hidden = false;
  $("token").focus();
}
