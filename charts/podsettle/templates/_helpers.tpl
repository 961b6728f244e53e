{{/* The name of everything: the release's, with the chart's where it does not say it. */}}
{{- define "podsettle.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* The labels of every object. */}}
{{- define "podsettle.labels" -}}
{{- include "podsettle.labelsWith" (list . dict) -}}
{{- end -}}

{{/* The labels of an object that has more of its own, which win over the common ones: a list of the context
     and these. */}}
{{- define "podsettle.labelsWith" -}}
{{- $own := include "podsettle.ownLabels" (first .) | fromYaml -}}
{{- toYaml (merge $own (last .) (first .).Values.commonLabels) -}}
{{- end -}}

{{- define "podsettle.ownLabels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{/* What the webhook's pods have, and the pod of `helm test` has not. */}}
{{- define "podsettle.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: webhook
{{- end -}}

{{- define "podsettle.tag" -}}
{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{/* `image`, from `global.imageRegistry` where that is set. As container runtimes do, takes what precedes the
     first slash for a registry if it looks like a host. */}}
{{- define "podsettle.fromRegistry" -}}
{{- $registry := (.global).imageRegistry | default "" | trimSuffix "/" -}}
{{- $parts := splitList "/" .image -}}
{{- $host := first $parts -}}
{{- if not $registry -}}
{{ .image }}
{{- else if and (rest $parts) (or (contains "." $host) (contains ":" $host) (eq $host "localhost")) -}}
{{ $registry }}/{{ rest $parts | join "/" }}
{{- else -}}
{{ $registry }}/{{ .image }}
{{- end -}}
{{- end -}}

{{- define "podsettle.image" -}}
{{- include "podsettle.fromRegistry" (dict "global" .Values.global "image" .Values.image.repository) -}}
{{- if .Values.image.digest -}}
@{{ .Values.image.digest }}
{{- else -}}
:{{ include "podsettle.tag" . }}
{{- end -}}
{{- end -}}

{{- define "podsettle.imagePullSecrets" -}}
{{- $secrets := .Values.imagePullSecrets -}}
{{- range (.Values.global).imagePullSecrets -}}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- with uniq $secrets -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{/* The helper's image, of podsettle's own version unless the value says which: pods that an older
     helper does not understand would fail. */}}
{{- define "podsettle.lingerImage" -}}
{{- with ternary "" .Values.lingerImage (eq .Values.lingerImage "none") -}}
{{ include "podsettle.fromRegistry" (dict "global" $.Values.global "image" .) }}{{ if not (contains ":" (splitList "/" . | last)) }}:{{ include "podsettle.tag" $ }}{{ end }}
{{- end -}}
{{- end -}}

{{/* The Secret with the certificate, whoever writes it. */}}
{{- define "podsettle.tlsSecret" -}}
{{- if eq .Values.certificates.source "files" -}}
{{ .Values.certificates.files.secretName }}
{{- else -}}
{{ include "podsettle.fullname" . }}-tls
{{- end -}}
{{- end -}}

{{/* What a container of this chart may do: nothing. The user is the image's, or the one that OpenShift assigns. */}}
{{- define "podsettle.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}

{{- define "podsettle.podSecurityContext" -}}
runAsNonRoot: true
seccompProfile:
  type: RuntimeDefault
{{- end -}}

{{/* The environment, the volumes and their mounts: lists, perhaps empty. */}}
{{- define "podsettle.env" -}}
{{- if include "podsettle.extraCA" . }}
- name: SSL_CERT_FILE
  value: /etc/podsettle/extra-ca/{{ .Values.extraCA.key }}
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
    secretName: {{ include "podsettle.tlsSecret" . }}
{{- end }}
{{- with .Values.webhook.clientCAConfigMap }}
- name: client-ca
  configMap:
    name: {{ . }}
{{- end }}
{{- with .Values.extraCA.configMap }}
- name: extra-ca
  configMap:
    name: {{ . }}
{{- end }}
{{- with .Values.extraCA.secret }}
- name: extra-ca
  secret:
    secretName: {{ . }}
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

{{/* Whether there are CAs besides the system's: a text, or none. */}}
{{- define "podsettle.extraCA" -}}
{{- or .Values.extraCA.configMap .Values.extraCA.secret -}}
{{- end -}}

{{/* The port of the proxy, none without one. */}}
{{- define "podsettle.proxyPort" -}}
{{- with .Values.proxy.httpsProxy -}}
{{- $url := urlParse . -}}
{{- regexFind "[0-9]+$" (regexFind ":[0-9]+$" $url.host) | default (eq $url.scheme "https" | ternary "443" "80") -}}
{{- end -}}
{{- end -}}

{{/* What the schema cannot say, because it takes two values, or would not say so that one knows what to do. */}}
{{- define "podsettle.validate" -}}
{{- if not .Values.image.repository -}}
{{- fail "at '/image/repository': say where your nodes pull podsettle from, such as --set image.repository=registry.example.com/team/podsettle. No image is published: build it and push it to a registry of yours, as in docs/install.md, The images" -}}
{{- end -}}
{{- if contains ":" (splitList "/" .Values.image.repository | last) -}}
{{- fail (printf "at '/image/repository': %s has a tag; the tag belongs into image.tag" .Values.image.repository) -}}
{{- end -}}
{{- if not .Values.lingerImage -}}
{{- fail "at '/lingerImage': say where your nodes pull the helper from, such as --set lingerImage=registry.example.com/team/linger. No image is published: build it and push it to a registry of yours, as in docs/install.md, The images. Or --set lingerImage=none: containers without a shell are then left as they are, and kubeletGate does nothing" -}}
{{- end -}}
{{- range $path, $image := dict "/image/repository" .Values.image.repository "/lingerImage" .Values.lingerImage -}}
{{- if hasPrefix "REGISTRY/" $image -}}
{{- fail (printf "at '%s': put your registry in the place of REGISTRY in %s" $path $image) -}}
{{- end -}}
{{- end -}}
{{- with .Values.imageConfig -}}
{{- if and .pullSecretNamespaces (not .pullSecrets) -}}
{{- fail "at '/imageConfig/pullSecretNamespaces': they say where pullSecrets holds, which is false" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.networkPolicy.registryPorts (not .Values.networkPolicy.apiServerPorts) -}}
{{- fail "at '/networkPolicy/registryPorts': without apiServerPorts podsettle may connect anywhere; set both or none" -}}
{{- end -}}
{{- with .Values.webhook -}}
{{- if and (eq .failurePolicy "Fail") (not (has "kube-system" .excludedNamespaces)) -}}
{{- fail "at '/webhook/excludedNamespaces': with failurePolicy Fail, excludedNamespaces has to contain kube-system: an outage of podsettle must not keep the cluster from mending itself" -}}
{{- end -}}
{{- end -}}
{{- if eq .Values.certificates.source "files" -}}
{{- if not .Values.certificates.files.secretName -}}
{{- fail "at '/certificates/files/secretName': source files needs the name of the Secret with tls.crt and tls.key, in the release's namespace" -}}
{{- end -}}
{{- if not .Values.webhook.caBundle -}}
{{- fail "at '/webhook/caBundle': source files needs the CA that the API server is to trust: --set-file webhook.caBundle=ca.crt" -}}
{{- end -}}
{{- else if .Values.webhook.caBundle -}}
{{- fail (printf "at '/webhook/caBundle': only source files takes a caBundle, %s registers its own: leave it out, or --set webhook.caBundle= where it is an earlier release's" .Values.certificates.source) -}}
{{- end -}}
{{- with .Values.certificates.selfManaged -}}
{{- if lt (trimSuffix "h" .caLife | int64) (mul 4 (trimSuffix "h" .leafLife | int64)) -}}
{{- fail (printf "at '/certificates/selfManaged/caLife': %s is less than four times the leafLife, %s" .caLife .leafLife) -}}
{{- end -}}
{{- end -}}
{{- with .Values.certificates.certManager -}}
{{- if ge (trimSuffix "h" .renewBefore | int64) (trimSuffix "h" .duration | int64) -}}
{{- fail (printf "at '/certificates/certManager/renewBefore': %s is not less than the duration, %s" .renewBefore .duration) -}}
{{- end -}}
{{- end -}}
{{- include "podsettle.validateExtras" . -}}
{{- with .Values.autoscaling -}}
{{- if gt (int .minReplicas) (int .maxReplicas) -}}
{{- fail (printf "at '/autoscaling/minReplicas': %v is more than the maxReplicas, %v" .minReplicas .maxReplicas) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What is brought along does not meet what the chart has. */}}
{{- define "podsettle.validateExtras" -}}
{{- if and .Values.extraCA.configMap .Values.extraCA.secret -}}
{{- fail "at '/extraCA': give a configMap or a secret, not both" -}}
{{- end -}}
{{- if contains "@" .Values.proxy.httpsProxy -}}
{{- fail "at '/proxy/httpsProxy': a password would stand in the Deployment, where every reader of it sees it; leave httpsProxy empty and give HTTPS_PROXY in extraEnv, with valueFrom.secretKeyRef" -}}
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
{{- range $at, $variable := .Values.extraEnv -}}
{{- $name := upper .name -}}
{{- if hasPrefix "PODSETTLE_" $name -}}
{{- fail (printf "at '/extraEnv/%d/name': %s is an option of podsettle, which the chart sets by a value of its own" $at .name) -}}
{{- end -}}
{{- with get $taken $name -}}
{{- fail (printf "at '/extraEnv/%d/name': %s is set already, by %s" $at $variable.name .) -}}
{{- end -}}
{{- $_ := set $taken $name (printf "/extraEnv/%d" $at) -}}
{{- end -}}
{{- $volumes := list -}}
{{- range $at, $volume := .Values.extraVolumes -}}
{{- if has .name (concat (list "tls" "client-ca" "extra-ca") $volumes) -}}
{{- fail (printf "at '/extraVolumes/%d/name': there is a volume %s already, of the chart's own or before this one; choose another name" $at .name) -}}
{{- end -}}
{{- $volumes = append $volumes .name -}}
{{- end -}}
{{- $paths := list -}}
{{- range $at, $mount := .Values.extraVolumeMounts -}}
{{- if not (has .name $volumes) -}}
{{- fail (printf "at '/extraVolumeMounts/%d/name': %s is none of extraVolumes" $at .name) -}}
{{- end -}}
{{- $path := printf "%s/" (clean .mountPath | trimSuffix "/") -}}
{{- range $own := list "/etc/podsettle/" "/opt/podsettle/" -}}
{{- if or (hasPrefix $own $path) (hasPrefix $path $own) -}}
{{- fail (printf "at '/extraVolumeMounts/%d/mountPath': %s would hide what podsettle has in %s" $at $mount.mountPath $own) -}}
{{- end -}}
{{- end -}}
{{- if has $path $paths -}}
{{- fail (printf "at '/extraVolumeMounts/%d/mountPath': there is a mount at %s already" $at .mountPath) -}}
{{- end -}}
{{- $paths = append $paths $path -}}
{{- end -}}
{{- end -}}
