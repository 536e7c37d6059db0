{{/* Refuses settings of the exporter, the cluster role and the operator that they would end with, and says what to do.
     files/settings.json has those of each command: what each takes and, where that says all, the form of it. */}}
{{- define "exporter.refuseSettings" -}}
{{- $roles := .Files.Get "files/settings.json" | fromJson -}}
{{- include "exporter.refuseKeys" (dict "roles" $roles "given" .Values.config "prefix" "") -}}
{{- include "exporter.refuseFlags" (dict "roles" $roles "command" "serve" "at" "extraArgs" "arguments" .Values.extraArgs) -}}
{{- include "exporter.refuseFlags" (dict "roles" $roles "command" "cluster" "at" "cluster.extraArgs" "arguments" .Values.cluster.extraArgs) -}}
{{- include "exporter.refuseFlags" (dict "roles" $roles "command" "operator" "at" "operator.extraArgs" "arguments" .Values.operator.extraArgs) -}}
{{- if and (eq .Values.mode "custom") (not (include "exporter.namesPage" .)) -}}
{{- fail "mode custom: say where the GPU samples come from, such as extraArgs: [--dcgm.url=http://HOST:9401/metrics], or config: {dcgm.selector: auto}" -}}
{{- end -}}
{{- end -}}

{{/* The configuration file, nested or flat. `prefix` is where `given` stands in it. */}}
{{- define "exporter.refuseKeys" -}}
{{- range $key, $value := .given -}}
{{- $name := print $.prefix $key -}}
{{- if hasKey $.roles.serve $name -}}
{{- include "exporter.refuseValue" (dict "setting" (get $.roles.serve $name) "at" (print "config." $name) "value" $value) -}}
{{- else if kindIs "map" $value -}}
{{- include "exporter.refuseKeys" (dict "roles" $.roles "given" $value "prefix" (print $name ".")) -}}
{{- else -}}
{{- fail (printf "config.%s is no setting of the exporter; %s" $name (include "exporter.settingMeant" (dict "roles" $.roles "command" "serve" "name" $name))) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* `--name=value`, or `--name` and then its value. */}}
{{- define "exporter.refuseFlags" -}}
{{- $settings := get .roles .command -}}
{{- $waits := "" -}}
{{- range $argument := .arguments -}}
{{- $name := trimPrefix "--" (splitList "=" $argument | first) -}}
{{- if $waits -}}
{{- include "exporter.refuseValue" (dict "setting" (get $settings $waits) "at" (printf "%s: --%s" $.at $waits) "value" $argument) -}}
{{- $waits = "" -}}
{{- else if not (hasPrefix "--" $argument) -}}
{{- fail (printf "%s: %s is no flag of %s; flags begin with --, such as --log.level=debug" $.at (trunc 20 $argument) $.command) -}}
{{- else if eq $name "config.file" -}}
{{- if not (contains "=" $argument) -}}{{- $waits = $name -}}{{- end -}}
{{- else if not (hasKey $settings $name) -}}
{{- $meant := include "exporter.settingMeant" (dict "roles" $.roles "command" $.command "name" $name "dashes" "--") -}}
{{- fail (printf "%s: --%s is no flag of %s; %s" $.at $name $.command $meant) -}}
{{- else if contains "=" $argument -}}
{{- $value := trimPrefix (printf "--%s=" $name) $argument -}}
{{- include "exporter.refuseValue" (dict "setting" (get $settings $name) "at" (printf "%s: --%s" $.at $name) "value" $value) -}}
{{- else -}}
{{- $waits = $name -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A value, or each of several. One that has no form here may be a secret, and is for the program to judge. */}}
{{- define "exporter.refuseValue" -}}
{{- if and .setting .setting.form -}}
{{- range $value := ternary .value (list .value) (kindIs "slice" .value) -}}
{{- $text := toString $value -}}
{{- if kindIs "bool" $value -}}{{- $text = ternary "on" "off" $value -}}{{- end -}}
{{- if not (regexMatch $.setting.form $text) -}}
{{- fail (printf "%s: %s is not allowed; it takes %s" $.at $text $.setting.takes) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What was meant by a name that is none: written otherwise, of another command, of the same group, or another group's. */}}
{{- define "exporter.settingMeant" -}}
{{- $plain := .name | lower | replace "_" "" | replace "-" "" -}}
{{- $first := splitList "." .name | first -}}
{{- $last := splitList "." .name | last | lower -}}
{{- $isDeep := contains "." .name -}}
{{- $same := list -}}
{{- $near := list -}}
{{- $far := list -}}
{{- range $each := keys (get .roles .command) | sortAlpha -}}
{{- $ownLast := splitList "." $each | last -}}
{{- if eq $plain ($each | lower | replace "_" "" | replace "-" "") -}}
{{- $same = append $same (print (default "" $.dashes) $each) -}}
{{- else if and (eq $isDeep (contains "." $each)) (eq (trunc 4 $.name) (trunc 4 $each)) (eq (trunc 2 $last) (trunc 2 $ownLast)) -}}
{{- $near = append $near (print (default "" $.dashes) $each) -}}
{{- else if or (eq $last $ownLast) (and (eq $first (splitList "." $each | first)) (eq (trunc 1 $last) (trunc 1 $ownLast))) -}}
{{- $far = append $far (print (default "" $.dashes) $each) -}}
{{- end -}}
{{- end -}}
{{- $meant := $same | default $near | default $far -}}
{{- $others := list -}}
{{- range $command, $settings := .roles -}}
{{- if hasKey $settings $.name -}}{{- $others = append $others $command -}}{{- end -}}
{{- end -}}
{{- if $others -}}
the command {{ join " or " $others }} takes it
{{- else if $meant -}}
did you mean {{ slice $meant 0 (min 3 (len $meant)) | join " or " }}?
{{- else -}}
docs/flags.md has all
{{- end -}}
{{- end -}}

{{/* Whether flags, the configuration file or the environment say where the mode "custom" has its samples from. */}}
{{- define "exporter.namesPage" -}}
{{- range .Values.extraArgs -}}
{{- if regexMatch "^--(dcgm[.](url|file|selector|mode)|config[.]file)(=|$)" . -}}true{{- end -}}
{{- end -}}
{{- range list "url" "file" "selector" "mode" -}}
{{- if or (hasKey $.Values.config (print "dcgm." .)) (hasKey (default (dict) (get $.Values.config "dcgm")) .) -}}true{{- end -}}
{{- end -}}
{{- range .Values.extraEnv -}}
{{- if regexMatch "^(DCGM_HOST|DCGM_LABELS|POD_GPU_EXPORTER_(DCGM_(URL|FILE|SELECTOR|MODE)|CONFIG_FILE))$" .name -}}true{{- end -}}
{{- end -}}
{{- end -}}

{{/* Quantities of Kubernetes that nobody means: 64 bytes of memory, millionths of a byte, millions of CPUs. */}}
{{- define "exporter.refuseQuantities" -}}
{{- range $section := list "limits" "requests" -}}
{{- range $name, $quantity := default (dict) (get (default (dict) $.resources) $section) -}}
{{- $path := printf "%s.%s.%s" $.path $section $name -}}
{{- $isNumber := not (kindIs "string" $quantity) -}}
{{- if kindIs "invalid" $quantity -}}
{{- else if eq $name "memory" -}}
{{- if or (and $isNumber (lt (int64 $quantity) 1048576)) (regexMatch "^[0-9.]+$" (ternary "" (toString $quantity) $isNumber)) -}}
{{- fail (printf "%s: %v is not allowed; it takes a quantity such as 64Mi: %v are bytes" $path $quantity $quantity) -}}
{{- else if not (or $isNumber (regexMatch "^[0-9.]+([KMGTPE]i|[kMGTPE]|e[0-9]+)$" $quantity)) -}}
{{- fail (printf "%s: %v is not allowed; it takes a quantity such as 64Mi" $path $quantity) -}}
{{- end -}}
{{- else if and (eq $name "cpu") (not $isNumber) (not (regexMatch "^[0-9.]+m?$" $quantity)) -}}
{{- fail (printf "%s: %v is not allowed; it takes a quantity such as 100m or 2" $path $quantity) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
