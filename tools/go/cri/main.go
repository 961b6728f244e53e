// Starts a container through the CRI, as a kubelet does, and prints how long CreateContainer took.
//
// cri SOCKET version prints the name and the release of the runtime, and fails if it does not answer.
// cri SOCKET start reads a JSON object from standard input and prints another one. It removes the
// sandbox before it ends.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const timeout = 5 * time.Minute

type request struct {
	Handler    string                `json:"handler"`
	Sandbox    *cri.PodSandboxConfig `json:"sandbox"`
	Container  *cri.ContainerConfig  `json:"container"`
	DropCaches bool                  `json:"drop_caches"`
}

type answer struct {
	// The call that failed, and its error. Both are empty if none did.
	Call          string  `json:"call"`
	Error         string  `json:"error"`
	CreateSeconds float64 `json:"create_seconds"`
	// What the runtime says of the started container.
	Status map[string]string `json:"status"`
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	connection, err := grpc.NewClient("unix://"+os.Args[1],
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	runtime := cri.NewRuntimeServiceClient(connection)
	if os.Args[2] == "version" {
		found, err := runtime.Version(ctx, &cri.VersionRequest{})
		check(err)
		fmt.Println(found.RuntimeName, found.RuntimeVersion)
		return
	}
	var asked request
	check(json.NewDecoder(os.Stdin).Decode(&asked))
	check(json.NewEncoder(os.Stdout).Encode(start(ctx, runtime, asked)))
}

func start(ctx context.Context, runtime cri.RuntimeServiceClient, asked request) answer {
	sandbox, err := runtime.RunPodSandbox(ctx,
		&cri.RunPodSandboxRequest{Config: asked.Sandbox, RuntimeHandler: asked.Handler})
	if err != nil {
		return answer{Call: "RunPodSandbox", Error: err.Error()}
	}
	defer func() {
		id := sandbox.PodSandboxId
		_, err := runtime.StopPodSandbox(ctx, &cri.StopPodSandboxRequest{PodSandboxId: id})
		check(err)
		_, err = runtime.RemovePodSandbox(ctx, &cri.RemovePodSandboxRequest{PodSandboxId: id})
		check(err)
	}()
	if asked.DropCaches {
		check(os.WriteFile("/proc/sys/vm/drop_caches", []byte("3"), 0))
	}
	begin := time.Now()
	created, err := runtime.CreateContainer(ctx, &cri.CreateContainerRequest{
		PodSandboxId: sandbox.PodSandboxId, Config: asked.Container, SandboxConfig: asked.Sandbox})
	took := time.Since(begin).Seconds()
	if err != nil {
		return answer{Call: "CreateContainer", Error: err.Error(), CreateSeconds: took}
	}
	id := created.ContainerId
	// A process that ignores SIGTERM would delay the end of the sandbox until the deadline.
	defer func() {
		_, err := runtime.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: id, Timeout: 0})
		check(err)
	}()
	if _, err = runtime.StartContainer(ctx, &cri.StartContainerRequest{ContainerId: id}); err != nil {
		return answer{Call: "StartContainer", Error: err.Error(), CreateSeconds: took}
	}
	found, err := runtime.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: id, Verbose: true})
	check(err)
	return answer{CreateSeconds: took, Status: found.Info}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
