// A client of grpc-java, with no option that the documentation of grpc-java does not give for unix
// sockets: asks for the status and prints how many bytes came. java -cp ... Client.java SOCKET

import io.grpc.CallOptions;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.netty.NettyChannelBuilder;
import io.grpc.stub.ClientCalls;
import io.netty.channel.epoll.EpollDomainSocketChannel;
import io.netty.channel.epoll.EpollEventLoopGroup;
import io.netty.channel.unix.DomainSocketAddress;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;

class Client {
  // The messages as bytes, so that no code has to be generated.
  static final MethodDescriptor.Marshaller<byte[]> BYTES =
      new MethodDescriptor.Marshaller<>() {
        public InputStream stream(byte[] message) {
          return new ByteArrayInputStream(message);
        }

        public byte[] parse(InputStream message) {
          try {
            return message.readAllBytes();
          } catch (IOException error) {
            throw new UncheckedIOException(error);
          }
        }
      };

  public static void main(String[] arguments) {
    EpollEventLoopGroup group = new EpollEventLoopGroup(1);
    ManagedChannel channel =
        NettyChannelBuilder.forAddress(new DomainSocketAddress(arguments[0]))
            .eventLoopGroup(group)
            .channelType(EpollDomainSocketChannel.class)
            .usePlaintext()
            .build();
    MethodDescriptor<byte[], byte[]> getStatus =
        MethodDescriptor.newBuilder(BYTES, BYTES)
            .setType(MethodDescriptor.MethodType.UNARY)
            .setFullMethodName("lrs.v1.Shaper/GetStatus")
            .build();
    byte[] status =
        ClientCalls.blockingUnaryCall(channel, getStatus, CallOptions.DEFAULT, new byte[0]);
    System.out.println("a status of " + status.length + " bytes");
    channel.shutdownNow();
    group.shutdownGracefully();
  }
}
