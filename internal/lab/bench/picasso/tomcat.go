package picasso

import (
	"archive/zip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weir-project/weir/internal/lab/report"
)

// tomcat is a package of tomcat, and the Java that runs it.
type tomcat struct{ home, javaHome, version string }

const (
	// tomcatPageBytes is the length of the document at / of a tomcat of apache.org, which ab fetches without pictures and
	// style. The paper's image has that page, with photos and links; Debian's own has 1.9 kB, in a package with a service.
	tomcatPageBytes = 11_200
	// tomcatBase is where tomcat's configuration and site are in the image.
	tomcatBase = "/tomcat"
	// tomcatWarmUp is how many requests an instance answers before it is measured, on a node that is not capped. Java
	// compiles meanwhile: few of the paper's 10,000 requests came before the end of that, most of the requests here would.
	tomcatWarmUp = 500
	warmUpUsers  = 10
	// startPatience is how long an instance may take until it answers.
	startPatience = time.Minute
)

// tomcatSite returns tomcat's files by their names in tomcatBase: its defaults, and a site of one page. It does not
// search its libraries for JSPs and annotations.
func tomcatSite() map[string]string {
	return map[string]string{
		"conf/server.xml": `<Server port="-1"><Service name="Catalina"><Connector port="80"/><Engine name="Catalina" defaultHost="localhost">` +
			`<Host name="localhost" appBase="webapps" autoDeploy="false"/></Engine></Service></Server>`,
		"conf/context.xml": `<Context><JarScanner scanClassPath="false" scanManifest="false"/></Context>`,
		"conf/web.xml": `<web-app metadata-complete="true"><servlet><servlet-name>default</servlet-name>` +
			`<servlet-class>org.apache.catalina.servlets.DefaultServlet</servlet-class><load-on-startup>1</load-on-startup></servlet>` +
			`<servlet-mapping><servlet-name>default</servlet-name><url-pattern>/</url-pattern></servlet-mapping>` +
			`<welcome-file-list><welcome-file>index.html</welcome-file></welcome-file-list></web-app>`,
		"webapps/ROOT/index.html": strings.Repeat(".", tomcatPageBytes),
	}
}

// findTomcat returns the newest tomcat that a package has installed, with Debian's default Java or that of the PATH.
func findTomcat() (t tomcat, err error) {
	const missing = "it is not installed (apt-get install tomcat10-common default-jre-headless)"
	for _, java := range []string{"/usr/lib/jvm/default-java/bin/java", "java"} {
		if java, err = exec.LookPath(java); err != nil {
			continue
		}
		if java, err = filepath.EvalSymlinks(java); err == nil {
			t.javaHome = filepath.Dir(filepath.Dir(java))
			break
		}
	}
	if err != nil {
		return t, errors.New(missing)
	}
	for _, home := range []string{"/usr/share/tomcat11", "/usr/share/tomcat10", "/usr/share/tomcat9"} {
		t.home = home
		if t.version, err = tomcatVersion(home); !errors.Is(err, fs.ErrNotExist) {
			return t, err
		}
	}
	return t, errors.New(missing)
}

var tomcatNumber = regexp.MustCompile(`(?m)^server\.number=(\d+\.\d+\.\d+)`)

// tomcatVersion returns the version of the tomcat in a folder.
func tomcatVersion(home string) (version string, err error) {
	archive, err := zip.OpenReader(filepath.Join(home, "lib/catalina.jar"))
	if err != nil {
		return "", err
	}
	defer archive.Close()
	file, err := archive.Open("org/apache/catalina/util/ServerInfo.properties")
	if err != nil {
		return "", err
	}
	defer file.Close()
	text, err := io.ReadAll(file)
	if err != nil {
		return "", err
	}
	number := tomcatNumber.FindSubmatch(text)
	if number == nil {
		return "", fmt.Errorf("%s names no version", home)
	}
	return string(number[1]), nil
}

// notForServers are files of Java that only compilers and desktops need; some need libraries of a desktop.
var notForServers = regexp.MustCompile(`^ct\.sym$|^src\.zip$|awt|atk|splash|font|sound|jpeg|lcms|mlib|pcsc`)

// files returns the files of tomcat and Java, which have the same paths in the image.
func (t tomcat) files() (map[string]string, error) {
	files := map[string]string{}
	for _, path := range []string{t.javaHome + "/bin/java", t.javaHome + "/lib", t.javaHome + "/conf", t.home + "/bin", t.home + "/lib"} {
		err := filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			// Packages have links to files of other packages, some of which are not installed.
			info, err := os.Stat(path)
			if err == nil && info.Mode().IsRegular() && !notForServers.MatchString(filepath.Base(path)) {
				files[path] = path
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("find tomcat's files: %w", err)
		}
	}
	return files, nil
}

// server returns tomcat as a server of the bench. The heap is small, so that four instances have room on one node, and only
// the compiler that is ready soon is used.
func (t tomcat) server() webServer {
	server := tomcatServer(t.version)
	server.command = []string{
		t.javaHome + "/bin/java", "-Xmx96m", "-Xss256k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true",
		"-Dcatalina.home=" + t.home, "-Dcatalina.base=" + tomcatBase, "-cp", t.home + "/bin/bootstrap.jar:" + t.home + "/bin/tomcat-juli.jar",
		"org.apache.catalina.startup.Bootstrap", "start",
	}
	return server
}

// tomcatServer returns the parts of tomcat's server that follow from its version.
func tomcatServer(version string) webServer {
	return webServer{
		name: serverTomcat, standsFor: fmt.Sprintf("rpi-tomcat: the same program, Debian's %s, with a page as large as the document at / of apache.org's, %.1f kB", version, tomcatPageBytes/1e3),
		pageBytes: tomcatPageBytes,
	}
}

// heavy returns the name of the server that is or stands for tomcat.
func (r Report) heavy() string {
	if r.Tomcat != "" {
		return serverTomcat
	}
	return serverHeavy
}

// webServers returns the paper's four servers as they were here.
func (r Report) webServers() []webServer {
	servers := webServers()
	if r.Tomcat != "" {
		servers[len(servers)-1] = tomcatServer(r.Tomcat)
	}
	return servers
}

// tomcatOf says which tomcat a claim is about; empty if about none.
func (r Report) tomcatOf(one report.Claim) string {
	named := func(v report.Value) bool { return strings.HasPrefix(v.Name, r.heavy()) }
	switch {
	case !strings.HasPrefix(one.Says, r.heavy()) && !slices.ContainsFunc(one.Values, named):
		return ""
	case r.Tomcat != "":
		return "; tomcat is tomcat " + r.Tomcat
	}
	return "; heavy is a server of our own in place of tomcat"
}

// importTomcat makes an image of this machine's tomcat, and starts it once.
func (b *bed) importTomcat(ctx context.Context) error {
	t, err := findTomcat()
	if err != nil {
		return err
	}
	contents, err := t.files()
	if err != nil {
		return err
	}
	site, err := b.writeFiles(tomcatSite())
	if err != nil {
		return err
	}
	for name, path := range site {
		contents[filepath.Join(tomcatBase, name)] = path
	}
	fmt.Fprintf(b.options.Progress, "making an image of tomcat %s\n", t.version)
	server := t.server()
	if err := b.addServer(ctx, server, contents); err != nil {
		return err
	}
	b.found.Tomcat = t.version
	if _, err = b.start(ctx, server, 0, 0); err == nil {
		return b.stop(server, 0, 0)
	}
	b.servers, b.found.Tomcat = b.servers[:len(b.servers)-1], ""
	delete(b.found.ImageBytes, server.name)
	return err
}

// warm sends requests to tomcat until Java has compiled the code that answers them.
func (b *bed) warm(ctx context.Context, s webServer, l layout) {
	if s.name != serverTomcat {
		return
	}
	var crowds sync.WaitGroup
	for i := range l.containers {
		crowd := b.crowd(l.nodeOf(i), firstPort+i, warmUpUsers)
		crowd.Requests, crowd.For = tomcatWarmUp, startPatience
		crowds.Go(func() { crowd.Run(ctx) })
	}
	crowds.Wait()
}
