let current;

// At the opening of the page, an answer does not scroll it, and a refusal is not shown.
async function preview({ atOpening = false } = {}) {
  current?.abort();
  const request = (current = new AbortController());
  setBusy(true);
  try {
    const answer = await requestPreview(request.signal);
    showError(null);
    showAnswer(answer, atOpening);
    if (!viewLoaded) loadView();
  } catch (error) {
    if (request.signal.aborted) return;
    if (!atOpening) {
      markStale();
      showError(error);
    }
  }
  if (current === request) setBusy(false);
}

function setBusy(busy) {
  $("results").setAttribute("aria-busy", busy);
  $("preview").textContent = busy ? "Previewing…" : "Preview";
}

async function requestPreview(signal) {
  const query = new URLSearchParams();
  const [namespace, path] = [$("namespace").value.trim(), $("path").value.trim()];
  if (namespace) query.set("namespace", namespace);
  for (const label of $("labels").value.split(/[\s,]+/)) {
    if (label) query.append("namespaceLabel", label);
  }
  if (path) query.set("templatePath", path);
  const body = joinTexts();
  const headers = { "Content-Type": "application/yaml" };
  const answer = await ask(`preview${query.size ? `?${query}` : ""}`, {
    method: "POST", headers, body, signal,
  });
  if (!Array.isArray(answer.pods)) throw makeError("The server failed", "The answer has no pods.");
  return answer;
}

// Sends a request with the token, and returns the JSON of the answer.
async function ask(path, { headers, ...options } = {}) {
  const token = $("token").value.trim().replace(/^Bearer\s+/i, "");
  if (/[^\x21-\x7e]/.test(token)) {
    throw makeError("This is not a token", "A token contains no spaces and only ASCII characters.", $("token"));
  }
  headers = { ...headers, Accept: "application/json" };
  if (token) headers.Authorization = `Bearer ${token}`;
  let response, text;
  try {
    response = await fetch(path, { ...options, headers, redirect: "error" });
    text = await response.text();
  } catch (error) {
    throw makeError("No answer from the server", error.message);
  }
  let answer;
  try { answer = JSON.parse(text); } catch { /* The text is shown as the error. */ }
  if (response.ok && answer && typeof answer === "object") return answer;
  throw errorFrom(response, answer?.detail ?? text);
}
