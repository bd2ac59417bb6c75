# A ResourceManager and a NodeManager as far as LRS asks them, on one port of loopback:
#
#   perl managers.pl PORT DIR NODE_ID MEMORY_MIB VCORES
#
# DIR/shown is the node's resource ("1024 4"), DIR/updates every one that was set. While DIR/refuse
# is there all is answered with 503. The real ones are in tests/yarn; the guest has no Java.
use strict;
use warnings;
use IO::Socket::INET;

my ($port, $dir, $id, $memory, $vcores) = @ARGV;
my $server = IO::Socket::INET->new(
    LocalAddr => '127.0.0.1', LocalPort => $port, Listen => 64, ReuseAddr => 1,
) or die "port $port: $!";

sub save {
    my ($how, $file) = @_;
    open(my $out, $how, $file) or die "$file: $!";
    print $out "$memory $vcores\n";
    close $out;
}

sub show {
    save('>', "$dir/shown.new");
    rename("$dir/shown.new", "$dir/shown") or die "$dir/shown: $!";
}

sub answer {
    my ($method, $path, $body) = @_;
    return (503, '{}') if -e "$dir/refuse";
    return (200, '{"clusterInfo":{"id":1,"startedOn":1,"state":"STARTED","haState":"ACTIVE",'
        . '"hadoopVersion":"3.4.1"}}') if $path eq '/ws/v1/cluster/info';
    return (200, "{\"nodeInfo\":{\"id\":\"$id\",\"nodeHealthy\":true,\"hadoopVersion\":\"3.4.1\","
        . '"nmStartupTime":1}}') if $path eq '/ws/v1/node/info';
    return (200, '{"containers":null}') if $path eq '/ws/v1/node/containers';
    return (200, "{\"app\":{\"id\":\"$1\",\"queue\":\"default\",\"priority\":0}}")
        if $path =~ m{^/ws/v1/cluster/apps/(\w+)$};
    if ($path eq "/ws/v1/cluster/nodes/$id/resource" && $method eq 'POST') {
        # Any other timeout kills containers.
        return (400, '{}') unless $body =~ m{<overCommitTimeout>-1</overCommitTimeout>};
        return (400, '{}')
            unless $body =~ m{<memory>(\d+)</memory><vCores>(\d+)</vCores>};
        ($memory, $vcores) = ($1, $2);
        save('>>', "$dir/updates");
        show();
        return (200, "{\"resourceInfo\":{\"memory\":$memory,\"vCores\":$vcores}}");
    }
    return (200, "{\"node\":{\"id\":\"$id\",\"state\":\"RUNNING\",\"totalResource\":"
        . "{\"memory\":$memory,\"vCores\":$vcores}}}") if $path eq "/ws/v1/cluster/nodes/$id";
    return (404, '{}');
}

show();
while (1) {
    my $client = $server->accept or next;
    my $first = <$client> // next;
    my $length = 0;
    while (my $line = <$client>) {
        $length = $1 if $line =~ /^content-length:\s*(\d+)/i;
        last if $line =~ /^\r?\n$/;
    }
    my $body = '';
    read($client, $body, $length) if $length;
    my ($method, $target) = split / /, $first;
    my ($path) = split /\?/, $target // '';
    my ($status, $text) = answer($method, $path, $body);
    print $client "HTTP/1.1 $status x\r\nContent-Type: application/json\r\nContent-Length: "
        . length($text) . "\r\nConnection: close\r\n\r\n$text";
    close $client;
}
