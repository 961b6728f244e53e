{{/* The name of all objects: the release's name, followed by the chart's name unless it contains that already.
     In a parent chart, an alias is the chart's name, and may have capitals and underscores. */}}
{{- define "podsettle.fullname" -}}
{{- $chart := .Values.nameOverride | default (.Chart.Name | lower | replace "_" "-") -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains $chart .Release.Name -}}
{{- .Release.Name -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $chart | trunc 63 | trimAll "-" -}}
{{- end -}}
{{- end -}}

{{/* The namespace of all objects. */}}
{{- define "podsettle.namespace" -}}
{{- .Values.namespaceOverride | default .Release.Namespace -}}
{{- end -}}

{{/* The labels of every object. */}}
{{- define "podsettle.labels" -}}
{{- include "podsettle.labelsWith" (list . dict) -}}
{{- end -}}

{{/* The labels of an object that has additional labels. The argument is a list of the context and the
     additional labels. Additional labels take precedence over `commonLabels`. */}}
{{- define "podsettle.labelsWith" -}}
{{- $own := include "podsettle.ownLabels" (first .) | fromYaml -}}
{{- include "podsettle.withoutNulls" (merge $own (last . | default dict) ((first .).Values.commonLabels | default dict)) -}}
{{- end -}}

{{/* A mapping without its nulls. With null, a file of values removes a key that an earlier file set. Helm removes only
     the keys that the chart sets, and the API server takes a null for an empty text. */}}
{{- define "podsettle.withoutNulls" -}}
{{- $kept := dict -}}
{{- range $key, $value := . -}}
{{- if kindIs "map" $value -}}
{{- $_ := set $kept $key (include "podsettle.withoutNulls" $value | fromYaml) -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $_ := set $kept $key $value -}}
{{- end -}}
{{- end -}}
{{- toYaml $kept -}}
{{- end -}}

{{- define "podsettle.ownLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimAll "-_." }}
app.kubernetes.io/name: {{ .Chart.Name | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | trunc 63 | trimAll "-_." | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* The labels that select the webhook's pods, but not the pod of `helm test`. */}}
{{- define "podsettle.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: webhook
{{- end -}}

{{/* The tag of podsettle's image, without the digest that may follow it. A tag cannot contain a plus sign. */}}
{{- define "podsettle.tag" -}}
{{ .Values.image.tag | default .Chart.AppVersion | replace "+" "_" | splitList "@" | first }}
{{- end -}}

{{/* The name of `image`, with its registry replaced by `global.imageRegistry` if that is set. The part before
     the first slash is a registry if it looks like a host name: container runtimes use the same rule. */}}
{{- define "podsettle.fromRegistry" -}}
{{- $registry := (.global).imageRegistry | default "" | trimSuffix "/" -}}
{{- $parts := splitList "/" .image -}}
{{- $host := first $parts -}}
{{- if not $registry -}}
{{ .image }}
{{- else if and (rest $parts) (or (contains "." $host) (contains ":" $host) (eq $host "localhost") (ne $host (lower $host))) -}}
{{ $registry }}/{{ rest $parts | join "/" }}
{{- else -}}
{{ $registry }}/{{ .image }}
{{- end -}}
{{- end -}}

{{- define "podsettle.image" -}}
{{- include "podsettle.fromRegistry" (dict "global" .Values.global "image" (.Values.image.repository | default "")) -}}
{{- if .Values.image.digest -}}
@{{ .Values.image.digest }}
{{- else if contains "@" (.Values.image.tag | default "") -}}
:{{ .Values.image.tag }}
{{- else -}}
:{{ include "podsettle.tag" . }}
{{- end -}}
{{- end -}}

{{- define "podsettle.imagePullSecrets" -}}
{{- $secrets := list -}}
{{- range concat (.Values.imagePullSecrets | default list) ((.Values.global).imagePullSecrets | default list) -}}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- with uniq $secrets -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* The helper's image. Its default tag is podsettle's, because a pod fails if its helper is older than
     the podsettle that wrote the helper's command line. */}}
{{- define "podsettle.lingerImage" -}}
{{- with ternary "" .Values.lingerImage (eq .Values.lingerImage "none") -}}
{{ include "podsettle.fromRegistry" (dict "global" $.Values.global "image" .) }}{{ if not (contains ":" (splitList "/" . | last)) }}:{{ include "podsettle.tag" $ }}{{ end }}
{{- end -}}
{{- end -}}

{{/* The name of the Secret with the certificate. Each `certificates.source` has its own: the Secrets of cert-manager and
     OpenShift outlive a change of the source, and no other one can take them over, because the type of a Secret is fixed. */}}
{{- define "podsettle.tlsSecret" -}}
{{- if eq .Values.certificates.source "files" -}}
{{ .Values.certificates.files.secretName }}
{{- else if eq .Values.certificates.source "selfManaged" -}}
{{ include "podsettle.fullname" . }}-tls
{{- else -}}
{{ include "podsettle.fullname" . }}-{{ kebabcase .Values.certificates.source }}-tls
{{- end -}}
{{- end -}}

{{/* A container's security context, without any privilege. It sets no user: the image names one, and OpenShift assigns one. */}}
{{- define "podsettle.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{/* The settings that the replicas and the pod of `helm test` have in common. */}}
{{- define "podsettle.podSettings" -}}
{{- /* With service links, a Service named podsettle sets PODSETTLE_PORT to a URL, which podsettle would read as its
     option --port. */ -}}
enableServiceLinks: false
{{- with .Values.priorityClassName }}
priorityClassName: {{ quote . }}
{{- end }}
{{- with include "podsettle.imagePullSecrets" . }}
{{ . }}
{{- end }}
securityContext:
  runAsNonRoot: true
  seccompProfile:
    type: RuntimeDefault
{{- with include "podsettle.withoutNulls" .Values.nodeSelector | fromYaml }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* A topology spread constraint. The argument is a list of the context, the topology key and `whenUnsatisfiable`. */}}
{{- define "podsettle.spread" -}}
- topologyKey: {{ index . 1 }}
  maxSkew: 1
  whenUnsatisfiable: {{ index . 2 }}
  # A node that no replica tolerates is no domain. Otherwise DoNotSchedule could leave replicas pending.
  nodeTaintsPolicy: Honor
  labelSelector:
    matchLabels:
      {{- include "podsettle.selectorLabels" (first .) | nindent 6 }}
  # Each revision is spread separately. Otherwise DoNotSchedule could block the additional pod of a rolling update.
  matchLabelKeys: [pod-template-hash]
{{- end -}}

{{/* The environment variables, the volumes and the volume mounts. Each of these lists may be empty. */}}
{{- define "podsettle.env" -}}
# By the downward API, because a tool such as kustomize can change the namespace of the rendered objects.
- name: PODSETTLE_NAMESPACE
  valueFrom:
    fieldRef:
      fieldPath: metadata.namespace
{{- if include "podsettle.extraCA" . }}
- name: SSL_CERT_FILE
  value: {{ printf "/etc/podsettle/extra-ca/%s" .Values.extraCA.key | quote }}
{{- end }}
{{- with .Values.proxy.httpsProxy }}
- name: HTTPS_PROXY
  value: {{ quote . }}
{{- end }}
{{- with .Values.proxy.noProxy }}
- name: NO_PROXY
  value: {{ quote . }}
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "podsettle.volumes" -}}
{{- if ne .Values.certificates.source "selfManaged" }}
- name: tls
  secret:
    secretName: {{ include "podsettle.tlsSecret" . | quote }}
{{- end }}
{{- with .Values.webhook.clientCAConfigMap }}
- name: client-ca
  configMap:
    name: {{ quote . }}
{{- end }}
{{- with .Values.extraCA.configMap }}
- name: extra-ca
  configMap:
    name: {{ quote . }}
{{- end }}
{{- with .Values.extraCA.secret }}
- name: extra-ca
  secret:
    secretName: {{ quote . }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "podsettle.volumeMounts" -}}
{{- if ne .Values.certificates.source "selfManaged" }}
- name: tls
  mountPath: /etc/podsettle/tls
  readOnly: true
{{- end }}
{{- if .Values.webhook.clientCAConfigMap }}
- name: client-ca
  mountPath: /etc/podsettle/client-ca
  readOnly: true
{{- end }}
{{- if include "podsettle.extraCA" . }}
- name: extra-ca
  mountPath: /etc/podsettle/extra-ca
  readOnly: true
{{- end }}
{{- with .Values.extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* The name of the object with additional CAs, or an empty string. */}}
{{- define "podsettle.extraCA" -}}
{{- .Values.extraCA.configMap | default .Values.extraCA.secret | default "" -}}
{{- end -}}

{{/* The port of the proxy, or an empty string if there is no proxy. */}}
{{- define "podsettle.proxyPort" -}}
{{- with .Values.proxy.httpsProxy -}}
{{- $url := urlParse . -}}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (eq $url.scheme "https" | ternary "443" "80") -}}
{{- end -}}
{{- end -}}

{{/* Checks that the schema cannot make because they compare two values, and checks whose message in the
     schema would not say what to do. */}}
{{- define "podsettle.validate" -}}
{{- $name := include "podsettle.fullname" . -}}
{{- if contains "." $name -}}
{{- fail (printf "at '/fullnameOverride': the name of the objects would be %s, and a Service cannot have a dot in its name; choose a release name without a dot, or set fullnameOverride" $name) -}}
{{- end -}}
{{- if and (regexMatch "^[0-9]" $name) (semverCompare "<1.36.0-0" .Capabilities.KubeVersion.Version) -}}
{{- fail (printf "at '/fullnameOverride': the name of the objects would be %s, and before Kubernetes 1.36 a Service's name begins with a letter; choose another release name, or set fullnameOverride" $name) -}}
{{- end -}}
{{- if not .Values.image.repository -}}
{{- fail "at '/image/repository': it is empty; set the image of podsettle, for example --set image.repository=registry.example.com/team/podsettle. No image is published: build it and push it to your own registry. See docs/install.md, The images" -}}
{{- end -}}
{{- if and .Values.image.digest (contains "@" (.Values.image.tag | default "")) -}}
{{- fail (printf "at '/image/tag': %s contains a digest, and image.digest is set, too; set only one of them" .Values.image.tag) -}}
{{- end -}}
{{- if contains ":" (splitList "/" .Values.image.repository | last) -}}
{{- fail (printf "at '/image/repository': %s contains a tag; put the tag into image.tag" .Values.image.repository) -}}
{{- end -}}
{{- if not .Values.lingerImage -}}
{{- fail "at '/lingerImage': it is empty; set the image of the helper, for example --set lingerImage=registry.example.com/team/linger. No image is published: build it and push it to your own registry. See docs/install.md, The images. To install without the helper: --set lingerImage=none. Containers without a shell then stay unchanged, and kubeletGate and startGate do nothing" -}}
{{- end -}}
{{- range $path, $image := dict "/image/repository" .Values.image.repository "/lingerImage" .Values.lingerImage -}}
{{- if hasPrefix "REGISTRY/" $image -}}
{{- fail (printf "at '%s': replace REGISTRY in %s by the name of your registry" $path $image) -}}
{{- end -}}
{{- if not (regexMatch "^(([a-zA-Z0-9.-]+|\\[[0-9a-fA-F:]+\\])(:[0-9]+)?/)?([a-z0-9]+([._-]+[a-z0-9]+)*/)*[a-z0-9]+([._-]+[a-z0-9]+)*(:[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127})?(@(sha256:[0-9a-f]{64}|sha512:[0-9a-f]{128}))?$" $image) -}}
{{- fail (printf "at '%s': %s is not the name of an image, such as registry.example.com/team/name" $path $image) -}}
{{- end -}}
{{- end -}}
{{- with .Values.imageConfig -}}
{{- if and .pullSecretNamespaces (not .pullSecrets) -}}
{{- fail "at '/imageConfig/pullSecretNamespaces': it has no effect while pullSecrets is false; set imageConfig.pullSecrets to true, or leave pullSecretNamespaces empty" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.networkPolicy.registryPorts (not .Values.networkPolicy.apiServerPorts) -}}
{{- fail "at '/networkPolicy/registryPorts': it has no effect while apiServerPorts is empty, because podsettle may then connect to every port; set both or none" -}}
{{- end -}}
{{- if eq (int .Values.port) (int .Values.webPort) -}}
{{- fail (printf "at '/webPort': %v is the value of port, too; choose another port" .Values.webPort) -}}
{{- end -}}
{{- range $name, $port := pick .Values "port" "webPort" -}}
{{- if and $.Values.hostNetwork (eq (int $port) 10250) -}}
{{- fail (printf "at '/%s': with hostNetwork, 10250 is the port of the node's kubelet; choose a port that is free on the nodes" $name) -}}
{{- end -}}
{{- end -}}
{{- with .Values.webhook -}}
{{- if and (eq .failurePolicy "Fail") (not (has "kube-system" .excludedNamespaces)) -}}
{{- fail "at '/webhook/excludedNamespaces': with failurePolicy Fail, excludedNamespaces must contain kube-system; otherwise an outage of podsettle prevents the cluster from recovering" -}}
{{- end -}}
{{- end -}}
{{- if eq .Values.certificates.source "files" -}}
{{- if not .Values.certificates.files.secretName -}}
{{- fail "at '/certificates/files/secretName': source files needs the name of the Secret with tls.crt and tls.key in the release's namespace" -}}
{{- end -}}
{{- if not .Values.webhook.caBundle -}}
{{- fail "at '/webhook/caBundle': source files needs the CA that the API server verifies the certificate with: --set-file webhook.caBundle=ca.crt" -}}
{{- end -}}
{{- else if .Values.webhook.caBundle -}}
{{- fail (printf "at '/webhook/caBundle': only source files takes a caBundle, %s registers its own; remove the value. If it comes from an earlier revision of the release: --set webhook.caBundle=" .Values.certificates.source) -}}
{{- end -}}
{{- with .Values.certificates.selfManaged -}}
{{- if lt (trimSuffix "h" .caLife | int64) (mul 4 (trimSuffix "h" .leafLife | int64)) -}}
{{- fail (printf "at '/certificates/selfManaged/caLife': %s is less than four times leafLife, which is %s" .caLife .leafLife) -}}
{{- end -}}
{{- end -}}
{{- with .Values.certificates.certManager -}}
{{- if ge (trimSuffix "h" .renewBefore | int64) (trimSuffix "h" .duration | int64) -}}
{{- fail (printf "at '/certificates/certManager/renewBefore': %s is not less than duration, which is %s" .renewBefore .duration) -}}
{{- end -}}
{{- /* The caBundle has the CA of the certificate, which cert-manager replaces two thirds of its lifetime after its issue,
     and then not before the certificate's own renewal (cert-manager#5851). */ -}}
{{- $least := sub (trimSuffix "h" .duration | int64) (trimSuffix "h" .renewBefore | int64) | mul 3 -}}
{{- if and (eq $.Values.certificates.source "certManager") (not .issuerRef) (lt (trimSuffix "h" .caDuration | int64) $least) -}}
{{- fail (printf "at '/certificates/certManager/caDuration': %s is less than three times duration without renewBefore; the registered CA could expire; set at least %dh" .caDuration $least) -}}
{{- end -}}
{{- end -}}
{{- with .Values.drain -}}
{{- if gt (trimSuffix "s" .quiet | int) (trimSuffix "s" .limit | int) -}}
{{- fail (printf "at '/drain/quiet': %s is longer than limit, which is %s" .quiet .limit) -}}
{{- end -}}
{{- end -}}
{{- range $value, $items := pick .Values "settlePolicies" "runtimeClasses" -}}
{{- $names := list -}}
{{- range $at, $item := $items -}}
{{- if has .name $names -}}
{{- fail (printf "at '/%s/%d/name': there is already one of the name %s; choose another name" $value $at .name) -}}
{{- end -}}
{{- $names = append $names .name -}}
{{- end -}}
{{- end -}}
{{- include "podsettle.validateExtras" . -}}
{{- with .Values.autoscaling -}}
{{- if gt (int .minReplicas) (int .maxReplicas) -}}
{{- fail (printf "at '/autoscaling/minReplicas': %v is more than maxReplicas, which is %v" .minReplicas .maxReplicas) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Checks that extraCA, proxy, extraEnv, extraVolumes and extraVolumeMounts do not conflict with the chart or with each other. */}}
{{- define "podsettle.validateExtras" -}}
{{- if and .Values.extraCA.configMap .Values.extraCA.secret -}}
{{- fail "at '/extraCA': set configMap or secret, not both" -}}
{{- end -}}
{{- if contains "@" (.Values.proxy.httpsProxy | default "") -}}
{{- fail "at '/proxy/httpsProxy': it contains a password, which every reader of the Deployment would see; leave httpsProxy empty and set HTTPS_PROXY in extraEnv, with valueFrom.secretKeyRef" -}}
{{- end -}}
{{- $taken := dict -}}
{{- if include "podsettle.extraCA" . -}}
{{- $_ := set $taken "SSL_CERT_FILE" "extraCA" -}}
{{- end -}}
{{- if .Values.proxy.httpsProxy -}}
{{- $_ := set $taken "HTTPS_PROXY" "proxy.httpsProxy" -}}
{{- end -}}
{{- if .Values.proxy.noProxy -}}
{{- $_ := set $taken "NO_PROXY" "proxy.noProxy" -}}
{{- end -}}
{{- $names := dict -}}
{{- range $at, $variable := .Values.extraEnv -}}
{{- $name := upper .name -}}
{{- if hasPrefix "PODSETTLE_" $name -}}
{{- fail (printf "at '/extraEnv/%d/name': %s is an option of podsettle; set it by the chart's own value instead" $at .name) -}}
{{- end -}}
{{- /* Many set HTTPS_PROXY and https_proxy, for programs that read only one of them. */ -}}
{{- with get $taken $name | default (get $names .name) -}}
{{- fail (printf "at '/extraEnv/%d/name': %s is already set by %s" $at $variable.name .) -}}
{{- end -}}
{{- $_ := set $names .name (printf "/extraEnv/%d" $at) -}}
{{- end -}}
{{- $volumes := list -}}
{{- range $at, $volume := .Values.extraVolumes -}}
{{- if has .name (concat (list "tls" "client-ca" "extra-ca") $volumes) -}}
{{- fail (printf "at '/extraVolumes/%d/name': there is already a volume %s, in the chart or earlier in extraVolumes; choose another name" $at .name) -}}
{{- end -}}
{{- $volumes = append $volumes .name -}}
{{- end -}}
{{- $paths := list -}}
{{- range $at, $mount := .Values.extraVolumeMounts -}}
{{- if not (has .name $volumes) -}}
{{- fail (printf "at '/extraVolumeMounts/%d/name': %s is not the name of a volume in extraVolumes" $at .name) -}}
{{- end -}}
{{- $path := printf "%s/" (clean .mountPath | trimSuffix "/") -}}
{{- range $own := list "/etc/podsettle/" "/opt/podsettle/" -}}
{{- if or (hasPrefix $own $path) (hasPrefix $path $own) -}}
{{- fail (printf "at '/extraVolumeMounts/%d/mountPath': %s would hide podsettle's files in %s" $at $mount.mountPath $own) -}}
{{- end -}}
{{- end -}}
{{- if has $path $paths -}}
{{- fail (printf "at '/extraVolumeMounts/%d/mountPath': there is already a mount at %s" $at .mountPath) -}}
{{- end -}}
{{- $paths = append $paths $path -}}
{{- end -}}
{{- end -}}
