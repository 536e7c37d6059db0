{{/* Refuses a key that there is not, and a text of another form, and says what to do: Helm's own words would not.
     `schema` describes the values `given` at `path`; its x-pattern and x-takes are read here alone. */}}
{{- define "exporter.refuseMistakes" -}}
{{- $keys := .schema.properties -}}
{{- range $key, $value := .given -}}
{{- $path := print $.path $key -}}
{{- if not (hasKey $keys $key) -}}
{{- fail (printf "%s is no value of this chart; %s" $path (include "exporter.meant" (dict "key" $key "path" $.path "keys" $keys "others" $.others))) -}}
{{- end -}}
{{- $form := get $keys $key -}}
{{- $ofEach := $form.additionalProperties -}}
{{- if index $form "x-resources" -}}
{{- include "exporter.refuseQuantities" (dict "path" $path "resources" $value) -}}
{{- end -}}
{{- if and $form.properties (kindIs "map" $value) -}}
{{- include "exporter.refuseMistakes" (dict "schema" $form "given" $value "path" (print $path ".") "others" $.others) -}}
{{- else if and (kindIs "map" $ofEach) (kindIs "map" $value) -}}
{{- range $inner, $text := $value -}}
{{- include "exporter.refuseForm" (dict "form" $ofEach "path" (printf "%s.%s" $path $inner) "text" $text "isSecret" true) -}}
{{- end -}}
{{- else -}}
{{- include "exporter.refuseForm" (dict "form" $form "path" $path "text" $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "exporter.refuseForm" -}}
{{- with index .form "x-pattern" -}}
{{- if not (and (kindIs "string" $.text) (regexMatch . (toString $.text))) -}}
{{- fail (printf "%s: %v is not allowed; it takes %s" $.path (ternary "what is there" $.text (hasKey $ "isSecret")) (index $.form "x-takes")) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* What was meant by `key`: another chart's, one that is written much alike, or one of all. */}}
{{- define "exporter.meant" -}}
{{- $key := lower .key -}}
{{- $near := list -}}
{{- range $each := keys .keys | sortAlpha -}}
{{- $other := lower $each -}}
{{- if or (contains $key $other) (contains $other $key) (eq (trunc 4 $key) (trunc 4 $other)) -}}
{{- $near = append $near (print $.path $each) -}}
{{- end -}}
{{- end -}}
{{- if get .others (print .path .key) -}}
{{- get .others (print .path .key) -}}
{{- else if and (not .path) (has .key (get .others "settings")) -}}
it is a setting of the exporter: put it below config
{{- else if $near -}}
did you mean {{ join " or " $near }}?
{{- else if .path -}}
there are {{ keys .keys | sortAlpha | join ", " }}
{{- else -}}
`helm show values` on the chart lists all
{{- end -}}
{{- end -}}
