"""Words that are nobody's names: those of this program's texts, of hardware, and of the programs around it.

Tests: tests/bundle/names/test_collected.py.
"""

from functools import cache

from exporter.bundle.vocabulary import own_words


def listed(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


# Names that Kubernetes and its GPU operators give, and on which decisions rest.
KEPT_NAMES = listed(
    "default kube-system kube-public kube-node-lease monitoring cert-manager kube-state-metrics node-exporter"
    " gpu-operator nvidia-gpu-operator nvidia-device-plugin nvidia-dra-driver-gpu"
    " dcgm-exporter nvidia-dcgm-exporter nvidia-dcgm-exporter-dra"
    " kai-resource-reservation runai-reservation resource-reservation pod-gpu-metrics pod-gpu-metrics-exporter"
)
_OTHERS = listed("""
a an and are as at be been but by can cannot could do does did for from
had has have how if in into is it its just may might more most must no
not nor of off on once only or other out over own so some such than that
the their then there these they this those to too under until up was
were what when where which while who whose why will with would you your
about above after again all also always any away back because before
below beside between both down during each either else even ever every
few first further get given gone good great here high however last late
later least less let like little long longer look low made make many
means meanwhile much name named near need never new next none nothing
now often old one ones open part parts past place please put rather read
ready really same say says second see seen set several short since small
soon stand still take taken takes tell than think three time times told
two unless use used uses using very wait want wants way well went
without word words work works wrong year yes yet api app apps argoproj
arn autoscaling batch beta alpha com core cronjob crio containerd
controller cri daemonset default deployment docker domain endpoint
endpoints event events extensions io job jobs k8s keda kubelet
kubernetes kubepods burstable besteffort guaranteed libpod lease local
localhost metadata net node nodes org podman pod pods rancher replicaset
replicasets resource resourceclaims resources resourceslices rollout
scope slice service statefulset status svc cluster system team uid user
version namespaces namespace labels label annotations annotation spec
items kind apiversion ownerreferences generation containers container
initcontainers limits requests claims phase running succeeded failed
pending unknown unhealthy healthy terminated waiting state states reason
message bin boot cdi dev dri driver drivers etc home host kmsg lib lib64
log mnt nvidiactl opt proc root run sbin share socket sock srv sys tmp
usr uvm tools var caps conf yaml yml json prom txt pb gz tar file files
config information checkpoint plugins plugin device devices dra minors
mig gi ci access monitor gpus gpu cpu mem memory vgpu cgroup cgroups fs
unified systemd namenode self ns pid pids exe comm cmdline net ipc mnt
uts init scope kubepods pod crictl nvidia amd intel huawei google habana
aws neuron tpu npu xpu gaudi ascend instinct radeon tesla quadro geforce
rtx gtx titan hopper ampere ada lovelace blackwell volta turing pascal
maxwell kepler grace a2 a10 a10g a16 a30 a40 a100 a800 b100 b200 b300
gb200 gb300 gh200 h20 h100 h200 h800 l2 l4 l20 l40 l40s p4 p40 p100 t4
v100 k80 sxm sxm2 sxm3 sxm4 sxm5 pcie pci nvl nvl2 nvl4 hbm hbm2 hbm2e
hbm3 hbm3e nvlink nvswitch oam mi100 mi210 mi250 mi250x mi300 mi300a
mi300x mi308x mi325x mi350x mi355x max flex data center corporation inc
graphics series professional super generation edition mobile laptop
server workstation super ti ce c2c fabric me nvrm nvml dcgm cuda xid
sxid aer ecc dbe sbe pmu gsp rpc mmu fault engine channel illegal
instruction exception warp parameter address physical physaddr virt read
write gpc tpc sm fbpa bank row remapper remapping remap rows reset
marked activate page retirement retired error errors fatal nonfatal
corrected uncorrectable correctable uncorrected contained uncontained
double single bit detected framebuffer partition subpartition bus fallen
off lost link links crc replay recovery timeout severity type
transaction data layer ltssm receiver transmitter intr engmask ch id
graphics compute copy video decoder encoder caused previous due process
processes killed stopped preemptive removal pdb hardware software
firmware thermal power brake slowdown violation clocks clock throttle
throttled application applications sync boost idle none active activity
utilization usage used free total reserved temperature temp energy
consumption frequency sensor board serial uuid brand vbios inforom oem
object persistence mode current maximum minimum bytes kib mib gib tib mb
gb tb kb hz mhz khz watts watt joules mj mw seconds ms us ns ratio
percent celsius count http https get head post put list watch ok bad
request unauthorized forbidden found internal unavailable gateway
connection refused reset peer broken pipe timed unreachable permission
denied such directory operation permitted invalid argument address
already ssl certificate verify handshake tls eof unexpected closed
architecture x86 x86_64 aarch64 arm64 amd64 linux python gcc debian
ubuntu generic release build unix kernel module open smp dynamic preempt
libc glibc musl grpc aiohttp protobuf bcrypt orjson msgspec
opentelemetry platform machine prometheus grafana thanos mimir exporter
exported metrics metric samples sample help type gauge counter untyped
summary histogram info unit eof total bucket sum created quantile le job
instance hostname modelname modelnames ix ixs north america central east
west south volcano hami gpushare koordinator kai runai aliyun
alibabacloud tencent vcuda allocator allocators hygon dcu cambricon mlu
iluvatar mthreads metax sgpu enflame gcu vgcu kunlunxin vxpu vastaitech
birentech tencent string int bool attributes attribute basic capacity
quantity value values pool pools productname parentuuid profile main jan
feb mar apr jun jul aug sep oct nov dec mon tue wed thu fri sat sun utc
gmt
""")


@cache
def vocabulary() -> frozenset[str]:
    """All these words, in small letters, and the program's own."""
    return own_words() | _OTHERS
