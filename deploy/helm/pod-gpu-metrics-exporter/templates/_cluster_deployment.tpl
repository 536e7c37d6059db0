{{- define "cluster.deployment" -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "cluster.fullname" . }}
  namespace: {{ include "exporter.namespace" . }}
  labels: {{- include "cluster.labels" . | nindent 4 }}
spec:
  replicas: {{ .Values.cluster.replicas }}
  selector:
    matchLabels: {{- include "cluster.selectorLabels" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "cluster.selectorLabels" . | nindent 8 }}
        {{- with .Values.cluster.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with .Values.cluster.podAnnotations }}
      annotations: {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "cluster.fullname" . }}
      enableServiceLinks: false
      {{- with .Values.imagePullSecrets }}
      imagePullSecrets: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.cluster.nodeSelector }}
      nodeSelector: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.cluster.tolerations }}
      tolerations: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.cluster.affinity }}
      affinity: {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .Values.cluster.priorityClassName }}
      priorityClassName: {{ . }}
      {{- end }}
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: ScheduleAnyway
          labelSelector:
            matchLabels: {{- include "cluster.selectorLabels" . | nindent 14 }}
      securityContext:
        runAsNonRoot: true
        runAsUser: 65534
        runAsGroup: 65534
        {{- if .Values.cluster.httpConfigSecret }}
        # what reads the Secret is not root
        fsGroup: 65534
        {{- end }}
        seccompProfile:
          type: RuntimeDefault
      containers:
        - name: cluster
          image: {{ include "exporter.image" . }}
          {{- with .Values.image.pullPolicy }}
          imagePullPolicy: {{ . }}
          {{- end }}
          args:
            - cluster
            - --cluster.service={{ include "exporter.namespace" . }}/{{ include "exporter.fullname" . }}
            {{- if .Values.cluster.keda.enabled }}
            - --keda.listen-address=:9401
            {{- end }}
            {{- with .Values.cluster.extraArgs }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          env:
            # --cluster.selector finds pods here; --cluster.service does not need it
            - name: POD_NAMESPACE
              valueFrom:
                fieldRef:
                  fieldPath: metadata.namespace
            {{- if .Values.cluster.httpConfigSecret }}
            - name: POD_GPU_EXPORTER_CLUSTER_HTTP_CONFIG
              value: /etc/pod-gpu-metrics-exporter/http/http.yaml
            {{- end }}
            {{- with .Values.cluster.extraEnv }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
          ports:
            - name: metrics
              containerPort: 9400
            {{- if .Values.cluster.keda.enabled }}
            - name: keda
              containerPort: 9401
            {{- end }}
          startupProbe:
            httpGet: {path: /-/healthy, port: metrics}
            periodSeconds: 1
            timeoutSeconds: 3
            failureThreshold: 60
          livenessProbe:
            httpGet: {path: /-/healthy, port: metrics}
            timeoutSeconds: 3
          # 503 until the nodes are known and each was asked; nodes that go missing later do not make a replica unready
          readinessProbe:
            httpGet: {path: /-/ready, port: metrics}
            timeoutSeconds: 3
          resources: {{- toYaml .Values.cluster.resources | nindent 12 }}
          securityContext:
            capabilities:
              drop: [ALL]
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
          {{- if .Values.cluster.httpConfigSecret }}
          volumeMounts:
            - name: http
              mountPath: /etc/pod-gpu-metrics-exporter/http
              readOnly: true
      volumes:
        - name: http
          secret:
            secretName: {{ .Values.cluster.httpConfigSecret }}
            defaultMode: 0440
          {{- end }}
{{- end -}}
