"""The catalogue of defects, compiled from `webhook/core/defects/*.yaml` by `make defects`.

Change the YAML files, not this module.
"""

# fmt: off
# ruff: noqa: E501

from __future__ import annotations

from webhook.core.defects.defect import Affected, Defect, Evidence, Fix, Partly, Sign, Symptom
from webhook.core.defects.versions import Version

DEFECTS: tuple[Defect, ...] = (
    Defect(
        id='containerd-slow-umount',
        title='containerd keeps a finished container Running while its root filesystem is unmounted',
        component='containerd',
        runs='a runtime other than CRI-O 1.22 or later',
        symptom=(
            Symptom(
                where='the log of containerd, while a pod stays in Init:0/1 and crictl ps shows Running',
                message='level=error msg="failed to handle container TaskExit event ..." error="failed to stop container: context deadline exceeded"',
            ),
            Symptom(
                where='the log of containerd at level debug',
                message='level=debug msg="failed to delete task" error="context deadline exceeded"',
            ),
        ),
        cause="containerd writes a container's state only after the umount of its root filesystem, for which it allows 10 s. An overlayfs umount syncs the filesystem below, which takes minutes on a busy disk. containerd tries again at intervals that grow to 5 minutes. Mounts with the option `volatile` are not synced.",
        affected=(
            Affected(
                component='containerd',
            ),
            Affected(
                component='cri-o',
                fixed=(
                    Fix(
                        release=Version(1, 22, 0),
                        link='https://github.com/cri-o/cri-o/commit/322a18e9aa',
                    ),
                ),
                newest=Version(1, 36, 0),
            ),
            Affected(
                component='any runtime',
            ),
        ),
        remedies=(
            'runtimeClass',
        ),
        advice='Configure nodes to make volatile mounts. The remedy sends pods to these nodes by a RuntimeClass. A Node does not show whether a runtime other than CRI-O makes volatile mounts, so each of them counts as affected.',
        links=(
            'https://github.com/containerd/containerd/issues/8698',
            'https://github.com/containerd/containerd/issues/9770',
            'https://github.com/containerd/containerd/pull/8676',
        ),
        page='reports/containerd-slow-umount.md',
        evidence=(
            Evidence(
                figure='A container that ended at 14:25 was Running for containerd until 14:40.',
                how='The public report "containerd init container stuck in Running". Not measured for podsettle.',
                date='2023-12-28',
            ),
            Evidence(
                figure='No release of containerd writes the state first.',
                how='Read in the source of the main branch.',
                date='2026-08-22',
            ),
        ),
    ),
    Defect(
        id='cri-o-9840',
        title='CRI-O reports exit code 255 for containers that end within milliseconds',
        component='cri-o',
        runs='an affected CRI-O',
        symptom=(
            Symptom(
                where='the status of a Tekton TaskRun, whose log is complete',
                message='init container failed, "prepare" exited with code 255',
            ),
            Symptom(
                where="the log of CRI-O before 1.34; a later line ends with the runtime's error",
                message='level=error msg="Failed to update container state for <container-id>: stdout: , stderr: "',
            ),
        ),
        cause="CRI-O asks the OCI runtime for a container's state once, right after the start. If the query fails, and conmon has not written the exit file yet, CRI-O records exit code 255 and never reads the true code. Only a container whose first process has ended by then is affected.",
        affected=(
            Affected(
                component='cri-o',
                fixed=(
                    Fix(
                        release=Version(1, 33, 13),
                        link='https://github.com/cri-o/cri-o/pull/9932',
                    ),
                    Fix(
                        release=Version(1, 34, 9),
                        link='https://github.com/cri-o/cri-o/pull/9879',
                    ),
                    Fix(
                        release=Version(1, 35, 3),
                        link='https://github.com/cri-o/cri-o/pull/9871',
                    ),
                    Fix(
                        release=Version(1, 36, 0),
                        link='https://github.com/cri-o/cri-o/pull/9846',
                    ),
                ),
                newest=Version(1, 36, 0),
            ),
        ),
        remedies=(
            'postInitSleep',
            'retryInitExit255',
        ),
        advice='Upgrade CRI-O if you can. OpenShift 4.20 normally has CRI-O 1.33, and 4.19 has 1.32.',
        links=(
            'https://github.com/cri-o/cri-o/issues/9840',
            'https://github.com/tektoncd/pipeline/issues/9654',
        ),
        page='reports/tekton-exit-255.md',
        evidence=(
            Evidence(
                figure='0 of 3,000 containers got exit code 255 without the changes below.',
                how='CRI-O 1.33.12 on one machine with 2 cores, 1,500 containers with runc 1.1.5 and 1,500 with crun 1.21. The state query never failed. What makes it fail elsewhere is not known.',
                date='2026-11-21',
            ),
            Evidence(
                figure='0.7 to 1.7 % of the init containers got exit code 255 on an idle node, and 8.4 % under load on CPU and disk.',
                how='The state query was made to fail for containers that have ended. CRI-O 1.33.12, runc and crun.',
                date='2026-11-21',
            ),
            Evidence(
                figure='71 to 99 % of the init containers failed without a delay, 68 % with 10 ms, 3.5 to 17 % with 50 ms, 0 to 1.7 % with 100 ms, 0 of 840 with 250 ms, and 0 of 500 with 500 ms.',
                how='The state query was made to fail, and conmon wrote the exit file 400 ms late. CRI-O 1.33.12.',
                date='2026-11-21',
            ),
            Evidence(
                figure='0 of 600 containers failed on CRI-O 1.33.13.',
                how='The state query was made to fail, in half of the runs with the late exit file, under load.',
                date='2026-11-21',
            ),
            Evidence(
                figure='0 of 4,000 init containers with postInitSleep (at least 1,000 with each delivery) and 112 of 120 without it got exit code 255; 0 of 601 containers on CRI-O 1.33.13 and 0 of 607 containers on containerd 2.1.9.',
                how='`make race`: the state query was made to fail, and the exit code was handed over 400 ms late. Kubernetes 1.36.2, CRI-O 1.33.12, 2 cores, load average before the run 0.9.',
                date='2026-11-23',
            ),
            Evidence(
                figure='0 of 1,725 init containers with postInitSleep and 167 of 224 without it got exit code 255; 0 of 100 and 27 of 100 Tekton TaskRuns failed.',
                how='The state query was made to fail, and conmon wrote the exit file 400 ms late, in some runs under load. Kubernetes 1.36.2, CRI-O 1.33.12, Tekton 1.15.0, podsettle installed by its chart.',
                date='2026-11-22',
            ),
        ),
    ),
    Defect(
        id='crio-selinux-relabel',
        title='CRI-O relabels every file of a volume at each start of a container',
        component='cri-o',
        runs='CRI-O',
        symptom=(
            Symptom(
                where='the events of a pod in CreateContainerError',
                message='Error: context deadline exceeded',
            ),
            Symptom(
                where='the events of the pod, after that',
                message='Error: kubelet may be retrying requests that are timing out in CRI-O due to system load. Currently at stage container volume configuration: ... error reserving ctr name ...: name is reserved',
            ),
        ),
        signs=(
            Sign(
                reason='Failed',
                contains=(
                    'Currently at stage container volume configuration',
                ),
                certainty='certain',
            ),
            Sign(
                reason='Failed',
                contains=(
                    'error reserving ctr name',
                    'name is reserved',
                ),
                certainty='likely',
            ),
        ),
        cause="Where SELinux is enforcing, the runtime sets the pod's label on every file of a volume before a container starts. With millions of files that takes many minutes. CRI-O compares only the label of the top directory if the pod has the annotation `TrySkipVolumeSELinuxLabel`, and the handler or workload allows it.",
        affected=(
            Affected(
                component='cri-o',
            ),
        ),
        partly=Partly(
            kubelet=Version(1, 37, 0),
            reason='VolumesNotSeen',
            message='CRI-O relabels only volumes that SELinuxMount of Kubernetes 1.37 does not mount with a label, such as those whose CSIDriver lacks seLinuxMount: true; podsettle does not know whether such volumes exist',
            link='https://github.com/kubernetes/enhancements/issues/1710',
        ),
        remedies=(
            'skipSELinuxRelabel',
        ),
        advice='From Kubernetes 1.37 on, use CSI drivers with `seLinuxMount: true`. The kubelet then mounts the volume with the label, and no file is relabelled.',
        links=(
            'https://github.com/cri-o/cri-o/pull/5373',
            'https://github.com/cri-o/cri-o/pull/9537',
            'https://github.com/kubernetes/enhancements/issues/1710',
        ),
        page='reports/crio-selinux-relabel.md',
        evidence=(
            Evidence(
                figure='Cron pods started up to 20 minutes late, with a volume of less than 50 GB and millions of files.',
                how='The public report "CreateContainerError - Openshift Error". Not measured for podsettle, because no node with SELinux was available.',
                date='2024-09-17',
            ),
        ),
    ),
    Defect(
        id='fsgroup-ownership-walk',
        title='The kubelet changes the owner of every file of a volume at each start of a pod with fsGroup',
        component='kubelet',
        runs='a kubelet',
        symptom=(
            Symptom(
                where='the log of the kubelet, while the pod is in ContainerCreating',
                message='Setting volume ownership for /var/lib/kubelet/pods/... and fsGroup set. If the volume has a lot of files then setting volume ownership could be slow, see https://github.com/kubernetes/kubernetes/issues/69699',
            ),
            Symptom(
                where='the events of the pod, with the reason VolumePermissionChangeInProgress, on newer kubelets',
                message='Setting volume ownership for <pod-uid>/volumes/... is taking longer than expected, consider using OnRootMismatch - https://kubernetes.io/docs/tasks/configure-pod-container/security-context/#configure-volume-permission-and-ownership-change-policy-for-pods',
            ),
        ),
        signs=(
            Sign(
                reason='VolumePermissionChangeInProgress',
                certainty='certain',
            ),
            Sign(
                reason='FailedMount',
                contains=(
                    'timed out waiting for the condition',
                ),
                certainty='possible',
            ),
            Sign(
                reason='FailedMount',
                contains=(
                    'context deadline exceeded',
                ),
                certainty='possible',
            ),
        ),
        cause='If a pod sets `fsGroup`, the kubelet by default changes the group and the permissions of every file of its volumes each time that it mounts them.',
        affected=(
            Affected(
                component='kubelet',
            ),
        ),
        remedies=(
            'fsGroupChangePolicy',
        ),
        advice='If you own the manifest, set `fsGroupChangePolicy: OnRootMismatch` there. On OpenShift, the namespace label `storage.openshift.io/fsgroup-change-policy` sets it.',
        links=(
            'https://github.com/kubernetes/kubernetes/issues/69699',
            'https://github.com/kubernetes/enhancements/issues/695',
            'https://github.com/openshift/kubernetes/pull/2344',
        ),
        page='fs-group-change-policy.md',
        evidence=(
            Evidence(
                figure='The change took 3.4 s at each start with 200,000 files, and 4 µs with OnRootMismatch. With OnRootMismatch, a file with another group kept it.',
                how='The function of the kubelet of Kubernetes 1.36.2 that changes the owners, on a directory of a local ext4 disk with empty files, on one machine with 2 cores that did other work too. No pod was started.',
                date='2026-11-22',
            ),
            Evidence(
                figure='The change took 444 to 464 s on a volume with 17 million files.',
                how='Read in kubernetes pull request 130398, by its author. Not measured for podsettle.',
                date='2025-02-24',
            ),
            Evidence(
                figure='Pod starts take minutes on volumes with many files, 7 to 10 minutes in one report.',
                how='Public issues in 15 repositories. Not measured for podsettle.',
                date='2026-11',
            ),
        ),
    ),
    Defect(
        id='kubelet-serving-certificate',
        title='The kubelet of a new node refuses log requests until its serving certificate is issued',
        component='kubelet',
        runs='a kubelet without a serving certificate',
        symptom=(
            Symptom(
                where='the errors of `kubectl logs`, of CI systems, and of other clients that read the log of a pod on a new node',
                message='Get "https://10.0.9.147:10250/containerLogs/...": remote error: tls: internal error',
            ),
            Symptom(
                where='the log of the kubelet',
                message='http: TLS handshake error from ...: no serving certificate available for the kubelet',
            ),
        ),
        cause='A kubelet with `serverTLSBootstrap` listens before its request for a serving certificate is approved. It accepts pods in the meantime, and refuses every TLS handshake.',
        affected=(
            Affected(
                component='kubelet',
            ),
        ),
        remedies=(
            'kubeletGate',
        ),
        advice='If you can taint new nodes, let them accept pods only after the certificate is issued. Releases of the kubelet do not matter.',
        links=(
            'https://github.com/woodpecker-ci/woodpecker/pull/5550',
            'https://github.com/kubernetes-sigs/node-readiness-controller/pull/365',
        ),
        page='kubelet-gate.md',
        evidence=(
            Evidence(
                figure='The request for the certificate was Pending for 15 s.',
                how='The public report woodpecker#5550, with Karpenter.',
                date='2025-09-25',
            ),
            Evidence(
                figure='A pod with the gate waited for 24 s, and continued 1 s after the approval.',
                how='Kubernetes 1.36.2 with serverTLSBootstrap, one pod, approval by hand.',
                date='2026-11-22',
            ),
        ),
    ),
    Defect(
        id='selinux-mount',
        title='Pods with different SELinux labels cannot share a volume on one node from Kubernetes 1.37 on',
        component='kubelet',
        runs='Kubernetes 1.37 or later',
        symptom=(
            Symptom(
                where='the events of the second pod, which stays in ContainerCreating',
                message='conflicting SELinux labels of volume',
            ),
        ),
        cause="From Kubernetes 1.37 on, SELinuxMount is locked on: the kubelet mounts volumes of CSI drivers with `seLinuxMount: true` under the pod's label. A mount has only one label.",
        affected=(
            Affected(
                component='kubelet',
                since=Version(1, 37, 0),
            ),
        ),
        remedies=(
            'seLinuxChangePolicy',
        ),
        advice='Apply the remedy before the upgrade to Kubernetes 1.37. On OpenShift, use the namespace label `storage.openshift.io/selinux-change-policy`.',
        links=(
            'https://github.com/kubernetes/enhancements/issues/1710',
            'https://github.com/openshift/kubernetes/pull/2344',
        ),
        page='selinux-change-policy.md',
        evidence=(
            Evidence(
                figure='SELinuxMount is GA and locked on in Kubernetes 1.37.',
                how='Read in KEP-1710. Not measured for podsettle, because no node with SELinux was available.',
                date='2026-07-24',
            ),
        ),
    ),
)
